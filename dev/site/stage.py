"""Lays out what the site is built from: the pages of docs/, and a page for each file they link to.

A page of docs/ may link to any file of the repository, as GitHub shows it. The site has such a file
as a page of its own, below files/, so that it needs no other host.
"""

from __future__ import annotations

import posixpath
from pathlib import Path, PurePosixPath
from typing import Final

from dev.site.markdown import anchors, links, with_links

ROOT: Final = Path(__file__).parents[2]
STAGED: Final = ROOT / "build/docs"

_ENTRANCES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages of the navigation that are not in docs/."""

_UNSEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n"
"""At the head of a page that a search does not find."""

_LANGUAGES: Final = {
    ".c": "c",
    ".h": "c",
    ".json": "json",
    ".md": "md",
    ".py": "python",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
}


def sources() -> list[str]:
    """Every page for people: paths below the repository's root."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in pages)


def target_of(page: str, link: str) -> tuple[str, str] | None:
    """What a link on a page means.

    Args:
        page: The path of the page below the repository's root.
        link: As it is written there.

    Returns:
        The path below the root and the anchor, empty if it has none; None if another host is meant.
    """
    if "://" in link or link.startswith("mailto:"):
        return None
    path, _, anchor = link.partition("#")
    folder = posixpath.dirname(page)
    return (posixpath.normpath(posixpath.join(folder, path)) if path else page), anchor


def dead_links(page: str) -> list[str]:
    """The links of a page that lead nowhere, with the reason."""
    dead = []
    for link in links((ROOT / page).read_text(encoding="utf-8")):
        target = target_of(page, link)
        if target is None:
            continue
        path, anchor = target
        if path.startswith("..") or not (ROOT / path).exists():
            dead.append(f"{page}: {link}: there is no {path}")
        elif anchor and anchor not in anchors((ROOT / path).read_text(encoding="utf-8")):
            dead.append(f"{page}: {link}: {path} has no heading with this anchor")
    return dead


def stage() -> None:
    """Write the sources of the site, and leave alone what has not changed."""
    made = _made()
    for path, content in made.items():
        place = STAGED / path
        if not place.exists() or place.read_bytes() != content:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    for old in STAGED.rglob("*"):
        if old.is_file() and str(old.relative_to(STAGED)) not in made:
            old.unlink()


def _made() -> dict[str, bytes]:
    """The content of each staged file, by its path there."""
    docs = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    waiting = [*_ENTRANCES, *(str(path.relative_to(ROOT)) for path in docs)]
    made: dict[str, bytes] = {}
    while waiting:
        path = waiting.pop()
        if _place(path) not in made:
            made[_place(path)], linked = _content(path)
            waiting += linked
    return made


def _content(path: str) -> tuple[bytes, list[str]]:
    """What the site has of a file or folder, and what that links to."""
    if not path.endswith(".md"):
        if path.startswith("docs/"):
            return (ROOT / path).read_bytes(), []
        page = _folder_page(path) if (ROOT / path).is_dir() else _file_page(path)
    else:
        page = (ROOT / path).read_text(encoding="utf-8")
    linked = []

    def moved(link: str) -> str:
        target = target_of(path, link)
        if target is None or link.startswith("#"):
            return link
        linked.append(target[0])
        place = posixpath.relpath(_place(target[0]), posixpath.dirname(_place(path)) or ".")
        return f"{place}#{target[1]}" if target[1] else place

    return with_links(page, moved).encode(), linked


def _place(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


def _file_page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"{_UNSEARCHED}# {path}\n\n````{language}\n{text}\n````\n"


def _folder_page(path: str) -> str:
    files = sorted(each.name for each in (ROOT / path).iterdir() if each.is_file())
    rows = (f"- [{name}]({posixpath.basename(path)}/{name})" for name in files)
    return "\n".join((f"# {path}", "", *rows, ""))
