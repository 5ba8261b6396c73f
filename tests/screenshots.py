"""``make screenshots``: the pictures of docs/guide.md, taken from a service that runs real studies.

``python -m tests.screenshots [--output FOLDER]``. It starts what ``tan-cli serve`` starts in a folder of its own,
lets three studies run to their statements, and looks at the pages with Chromium. Minutes on two cores.
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from service.client import Client
from service.local.handle import LocalService
from service.studies.schemas import StudyView
from tests.browser.conftest import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "digits.yaml"
ACCOUNTED = ROOT / "examples" / "accounted.yaml"
OUTPUT = ROOT / "docs" / "images"
MOST_BYTES = 150_000
COLOURS = (256, 128, 64, 32)
"""Of the palette; the first that fits ``MOST_BYTES`` is taken."""
LIMIT_SECONDS = 1200
PLAN = "dataset=digits&model=mlp&accounting=declared_unaccounted&epsilon=3&batch_size=256&steps=300"


def main() -> int:
    """Take every picture; 1 where a study did not complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the pictures go")
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="tan-") as home,
        LocalService(Path(home)) as url,
        Client(url) as client,
        _browser() as browser,
    ):
        camera = Camera(browser, url, output)
        first = client.submit_study(
            _study("digits-mlp", {"name": "mlp", "hidden": [64]}, trials=48)
        )
        study = _wait(client, first.id, lambda one: one.progress.trials_finished >= 6)
        camera.shoot("study-live", f"/ui/studies/{study.id}", until="#trials tbody tr")
        if client.get_study(study.id).state != "simulating":
            print("the search ended before its picture was taken", file=sys.stderr)
            return 1
        done = [_end(client, first.id)]
        second = client.submit_study(_study("digits-linear", {"name": "linear"}))
        done.append(_end(client, second.id))
        third = client.submit_study(yaml.safe_load(ACCOUNTED.read_text()))
        done.append(_end(client, third.id))
        for one in done:
            print(f"{one.name}: {one.state}", file=sys.stderr)
            if one.state != "completed":
                return 1
        _shoot_all(camera, done[:2])
        _shoot_accounted(camera, done[2])
    return 0


class Camera:
    """Takes pictures of pages of one service, and writes them as small as they can be."""

    def __init__(self, browser: Browser, url: str, output: Path) -> None:
        self._browser, self._url, self._output = browser, url, output

    def shoot(
        self,
        name: str,
        path: str,
        *,
        until: str,
        look: Callable[[Page], object] | None = None,
        scheme: str = "light",
        size: tuple[int, int] = (1280, 900),
    ) -> None:
        """One picture of what is seen first, or after ``look`` has scrolled, when ``until`` is there."""
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            base_url=self._url,
        )
        try:
            page = context.new_page()
            page.goto(path)
            page.wait_for_selector(until, timeout=90_000)
            if look is not None:
                look(page)
            page.wait_for_timeout(500)  # charts that a script draws
            picture = _small(page.screenshot())
        finally:
            context.close()
        file = self._output / f"{name}.png"
        file.write_bytes(picture)
        print(f"{file.name}: {len(picture) // 1000} kB", file=sys.stderr)


def _shoot_all(camera: Camera, studies: list[StudyView]) -> None:
    first = studies[0]
    compared = "&".join(f"study={one.id}" for one in studies)
    study = f"/ui/studies/{first.id}"
    camera.shoot("studies", "/", until="#studies tbody tr", size=(1280, 560))
    camera.shoot("study", study, until="#figures")
    camera.shoot("study-dark", study, until="#figures", look=_to("#prediction-head"), scheme="dark")
    camera.shoot(
        "evaluation",
        study,
        until="#evaluation table",
        look=_to("#evaluation-head"),
        size=(1280, 620),
    )
    camera.shoot(
        "choosing", study, until="#parallel svg", look=_drag_along_the_last_axis, size=(1280, 640)
    )
    trial = f"{study}/trials/{first.promotion.trial}" if first.promotion else study
    camera.shoot("trial", trial, until="#learning canvas", size=(1280, 1240))
    camera.shoot("plan", f"/ui/plan?{PLAN}", until="#plan-modes")
    camera.shoot(
        "plan-modes",
        f"/ui/plan?{PLAN}",
        until="#plan-modes",
        look=_to("#plan-head"),
        size=(1280, 1240),
    )
    camera.shoot("privacy", f"/ui/datasets/{first.spec['dataset']}", until="#chain .badge")
    camera.shoot("compare", f"/ui/compare?{compared}", until="#results")
    camera.shoot("calibration", "/ui/calibration", until="#coverage")
    camera.shoot("phone", study, until="#figures", size=(390, 844))


def _shoot_accounted(camera: Camera, study: StudyView) -> None:
    page = f"/ui/studies/{study.id}"
    camera.shoot(
        "accounted", page, until="#trials tbody tr", look=_to("#trials-head"), size=(1280, 515)
    )
    camera.shoot(
        "statement",
        f"{page}/statement",
        until="#verdict table",
        look=_to("#run-head"),
        size=(1280, 590),
    )


def _to(selector: str) -> Callable[[Page], object]:
    """Scroll until this is at the top."""
    return lambda page: page.eval_on_selector(selector, "element => element.scrollIntoView()")


def _drag_along_the_last_axis(page: Page) -> None:
    """Choose the trials of the highest accuracies."""
    page.eval_on_selector("#parallel", "element => element.scrollIntoView()")
    box = page.locator("#parallel svg").bounding_box()
    if box is None:
        raise ValueError("the parallel coordinates are not to be seen")
    across = box["x"] + box["width"] - 2
    page.mouse.move(across, box["y"])
    page.mouse.down()
    page.mouse.move(across, box["y"] + 0.4 * box["height"], steps=5)
    page.mouse.up()


def _study(name: str, model: dict[str, Any], *, trials: int = 12) -> dict[str, Any]:
    """The example with another name, model and search, told by class beside a model without privacy."""
    example = yaml.safe_load(EXAMPLE.read_text())
    search = {**example["search"], "trials": trials}
    asked = {"name": name, "model": model, "search": search, "evaluation": {"baseline": True}}
    return {**example, **asked}


def _end(client: Client, study_id: str) -> StudyView:
    return _wait(client, study_id, lambda study: study.state.is_terminal)


def _wait(client: Client, study_id: str, holds: Callable[[StudyView], bool]) -> StudyView:
    """The study as soon as this holds of it, or when it is over."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        study = client.get_study(study_id)
        if holds(study) or study.state.is_terminal:
            return study
        time.sleep(1)
    raise TimeoutError(f"study {study_id} did not come so far within {LIMIT_SECONDS} s")


@contextmanager
def _browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def _small(png: bytes) -> bytes:
    """The picture with as many colours as fit the limit."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in COLOURS:
        written = io.BytesIO()
        picture.quantize(colours).save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            return written.getvalue()
    raise ValueError(f"a picture is above {MOST_BYTES} bytes with {COLOURS[-1]} colours")


if __name__ == "__main__":
    sys.exit(main())
