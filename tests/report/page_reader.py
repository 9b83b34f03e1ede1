"""A page read back: its elements, its text, and the figures of its tables."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """A page as a list of elements, with its visible text and what is open where."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.texts: list[tuple[str, tuple[str, ...]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        assert len(named) == len(attrs), (tag, attrs)
        self.elements.append((tag, named, tuple(self._open)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.texts.append((data, tuple(self._open)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [named[attribute] or "" for _, named, _ in self.elements if attribute in named]

    @property
    def text(self) -> str:
        return "".join(text for text, where in self.texts if not {"style", "script"} & {*where})


def numbers_of(html: str) -> dict[tuple[str, str], list[str]]:
    """Return the figures of each cell on a page."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in re.findall(r"<table data-table=.*?</table>", html, re.DOTALL):
        column = re.search(r'data-column="([^"]+)"', table)
        assert column is not None
        for row, inside in re.findall(r'<tr data-row="([^"]+)"[^>]*>(.*?)</tr>', table, re.DOTALL):
            cells = re.findall(r'<td[^>]*class="num[^"]*">(.*?)</td>', inside, re.DOTALL)
            found[column[1], row] = [Page(cell).text.strip() for cell in cells]
    return found
