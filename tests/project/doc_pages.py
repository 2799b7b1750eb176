"""The Markdown pages of the repository, found by their names in any folder of docs/."""

from pathlib import Path

from conftest import ROOT

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
DATASHEETS = sorted((ROOT / "data").rglob("README.md"))


def find_page(name: str) -> Path:
    """Return the path of the page with this file name, wherever in docs/ it is."""
    matches = [path for path in DOCS if path.name == name]
    if len(matches) != 1:
        raise FileNotFoundError(f"docs/ has {len(matches)} pages named {name}; expected one.")
    return matches[0]
