"""axe-core on a page: what people with other senses or hands would stumble over."""

from pathlib import Path

from playwright.async_api import Page

SOURCE = Path(__file__).parent / "vendor/axe-core/axe.min.js"
COLOURS = ["color-contrast", "link-in-text-block"]
RUN = """async (rules) => {
  const { violations } = await axe.run(document, {
    resultTypes: ["violations"],
    ...(rules ? { runOnly: { type: "rule", values: rules } } : { rules: { "target-size": { enabled: true } } }),
  });
  return violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
    `${id}: ${target.join(" ")}: ${failureSummary.replaceAll("\\n", " ")}`));
}"""


async def violations(page: Page, *, scheme: str = "light") -> list[str]:
    """Each violation, with where it is and what to mend; of dark pages, of what their colours decide."""
    await page.evaluate(SOURCE.read_text())
    return await page.evaluate(RUN, COLOURS if scheme == "dark" else None)
