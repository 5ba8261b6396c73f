"""A page as tests read it."""

from html.parser import HTMLParser

import httpx

VOID = {"meta", "link", "input", "br", "wbr", "hr", "img", "rect", "path"}
Attributes = dict[str, str | None]


class Page(HTMLParser):
    """A page as its elements: (tag, attributes), and the text inside those with an id."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, Attributes]] = []
        self.text: dict[str, str] = {}
        self.data: dict[str, list[float]] = {}
        self._labelled: list[Attributes] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(html)
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if any(opened == "label" for opened, _ in self._open):
            self._labelled.append(attributes)
        if tag == "data":
            for _, id_ in self._open:
                if id_:
                    self.data.setdefault(id_, []).append(float(attributes["value"] or "nan"))
        if tag not in VOID:
            self._open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        opened, _ = self._open.pop()
        assert opened == tag, f"<{opened}> is closed by </{tag}>"

    def handle_data(self, data: str) -> None:
        for _, id_ in self._open:
            if id_:
                self.text[id_] = self.text.get(id_, "") + data

    def is_within_label(self, element: Attributes) -> bool:
        """Whether the element's label is around it."""
        return any(element is each for each in self._labelled)

    def all(self, tag: str) -> list[Attributes]:
        return [attributes for name, attributes in self.elements if name == tag]


async def get(client: httpx.AsyncClient, path: str, *, status: int = 200) -> Page:
    response = await client.get(path)
    assert response.status_code == status, response.text[:2000]
    assert response.headers["content-type"].startswith("text/html")
    return Page(response.text)
