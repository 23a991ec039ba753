"""The controller's pages in this process, and a browser that is strict about what it gets."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from service.app import create_app
from tests.lab import Lab
from tests.service.api.inprocess import InProcess

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; fails on tags that don't close in order and on attributes that a strict policy forbids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = dict(attrs)
        assert tag not in ("script", "style", "iframe")
        assert not [name for name in at if name.startswith("on") or name == "style"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "a":
            self.links.append(at["href"] or "")
        if tag == "link":
            self.references.append(at["href"] or "")
        if at.get("id"):
            self.ids.append(str(at["id"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    @property
    def text(self) -> str:
        return " ".join(self.words)


class Site:
    """A lab and a browser that looks at it."""

    def __init__(self, directory: Path) -> None:
        self.lab = Lab(directory)
        self.client = InProcess(create_app(self.lab.ctx))

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})

    def page(self, path: str, status: int = 200) -> Page:
        answer = self.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        return Page(answer.text)

    def twin(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def close(self) -> None:
        self.client.close()
        self.lab.close()
