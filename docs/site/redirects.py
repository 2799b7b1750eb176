"""Pages at the old URLs of moved pages, which lead to the new ones."""

import csv
import json
import posixpath
from collections import defaultdict
from pathlib import Path

TABLE = Path(__file__).with_name("redirects.csv")
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{page}">
<meta http-equiv="refresh" content="1; url={page}">
<script>
const places = {places};
location.replace(places[location.hash.slice(1)] ?? "{page}");
</script>
</head>
<body><p>This page has moved to <a href="{page}">{page}</a>.</p></body>
</html>
"""


def read_redirects() -> dict[str, str]:
    """Return the new URL for each old one; both are relative to the site and may have an anchor."""
    with TABLE.open(newline="") as file:
        return {row["old"]: row["new"] for row in csv.DictReader(file)}


def write_redirects(folder: Path) -> None:
    """Write a page at each old URL into the folder of the site's pages."""
    pages = {}
    anchors: dict[str, dict[str, str]] = defaultdict(dict)
    for old, new in read_redirects().items():
        page, _, anchor = old.partition("#")
        place = posixpath.relpath(new, posixpath.dirname(page) or ".")
        if anchor:
            anchors[page][anchor] = place
        else:
            pages[page] = place
    for page, place in pages.items():
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(page=place, places=json.dumps(anchors[page], indent=1)))
