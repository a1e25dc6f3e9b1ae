"""Looks at the built site: every link leads somewhere, and nothing comes from another host."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class _Page(HTMLParser):
    """What is in a page.

    Attributes:
        ids: What can be linked to.
        links: Where people are led.
        loaded: What the browser fetches by itself.
    """

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag refers to."""
        given = {name: value for name, value in attrs if value}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in {"canonical", "prev", "next"}:
            self.loaded.append(given.get("href", ""))
        if tag in {"audio", "iframe", "img", "script", "source", "video"} and "src" in given:
            self.loaded.append(given["src"])


def problems(site: Path) -> list[str]:
    """Dead links and anchors, and what is loaded from other hosts, one line each."""
    site = site.resolve()
    pages = {path: _parsed(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in dict.fromkeys((*page.links, *page.loaded)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{name} loads {link} from another host")
                continue
            # The page that stands for missing ones has links from the root of the site.
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{name}: {link} leads nowhere")
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                found.append(f"{name}: {link} has no such place")
    return found


def _parsed(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page
