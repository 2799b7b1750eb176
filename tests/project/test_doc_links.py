"""Relative links of README, the docs and the datasheets lead to files and headings that exist."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from conftest import ROOT
from doc_pages import DATASHEETS, DOCS, README
from markdown_it import MarkdownIt
from markdown_it.token import Token

PAGES = [README, ROOT / "CHANGELOG.md", *DOCS, *DATASHEETS]
PAGES += [page for page in [ROOT / "CONTRIBUTING.md"] if page.is_file()]
# Written when the site is built
SITE_PAGES = ("docs/api/", "docs/gallery.md")


def parse(page: Path) -> list[Token]:
    """Return the blocks of a page."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def inline_tokens(page: Path) -> list[Token]:
    """Return the links, images and HTML of a page."""
    return [token for block in parse(page) for token in block.children or []]


def read_links(page: Path) -> list[str]:
    """Return the targets of the links and images of a page that are not URLs."""
    tokens = inline_tokens(page)
    targets = [token.attrs.get("href") or token.attrs.get("src") for token in tokens]
    html = [token.content for token in [*parse(page), *tokens] if token.type.startswith("html_")]
    targets += re.findall(r'\b(?:src|srcset|href)="([^"]*)"', "".join(html))
    return [str(target) for target in targets if target and not urlsplit(str(target)).scheme]


@cache
def read_anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub writes them, and the HTML ids."""
    anchors: set[str] = set()
    blocks = parse(page)
    for opening, inline in pairwise(blocks):
        if opening.type == "heading_open":
            parts = [token.content for token in inline.children if token.type != "html_inline"]
            words = re.sub(r"[^\w\- ]", "", "".join(parts).strip().lower())
            anchor = words.replace(" ", "-")
            repeats = sum(bool(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", a)) for a in anchors)
            anchors.add(f"{anchor}-{repeats}" if repeats else anchor)
    return anchors | set(re.findall(r'\b(?:id|name)="([^"]+)"', page.read_text()))


def resolve(page: Path, target: str) -> tuple[Path, str]:
    """Return the path and the anchor that a link of a page leads to."""
    parts = urlsplit(target)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return path, unquote(parts.fragment)


def is_on_site_only(path: Path) -> bool:
    """Return whether a path is that of a page which the site's builder writes."""
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix().startswith(SITE_PAGES)


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files or headings that do not exist."""
    broken = []
    for target in read_links(page):
        path, anchor = resolve(page, target)
        is_page = path.suffix == ".md" and path.is_file()
        is_wrong = is_page and anchor and anchor not in read_anchors(path)
        if is_wrong or not (path.exists() or is_on_site_only(path)):
            broken.append(target)
    return broken


def test_links_lead_to_existing_files_and_headings():
    assert [(page, link) for page in PAGES for link in broken_links(page)] == []


def test_every_file_that_the_pages_for_developers_name_exists():
    pages = (ROOT / "docs" / "development").glob("*.md")
    named = [name for page in pages for name in re.findall(r"`([\w/]+\.py)`", page.read_text())]
    files = [
        path for folder in ("pro_lib", "tests", "docs") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    assert len(named) > 20
    assert [name for name in named if not any(path.match(name) for path in files)] == []
