"""The explorer of a run as one HTML file, which needs neither a kernel nor a network."""

from __future__ import annotations

import html
import json
import os
import re
import string
from collections.abc import Sequence
from pathlib import Path

from pro_lib import scoring
from pro_lib.app.explorer.data import comparison_data, run_data
from pro_lib.app.explorer.page_parts import STYLES, read_javascript
from pro_lib.common.files import RunError, sha256, write_whole
from pro_lib.common.validation import not_empty
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.runs.run import Run

_TEMPLATE = Path(__file__).with_name("explorer.html")
_GENERATOR = "PRO workbench"  # by which a page names the package that wrote it
_META_ELEMENTS = re.compile(
    rb'<meta name="generator" content="([^"]*)">\s*<meta name="source" content="(\w*)">'
)


def to_html(
    run: Run,
    path: str | Path,
    *,
    alpha: float = 0.4,
    source: str | Path | None = None,
    rules: AnswerRules | None = None,
    methods: Sequence[str] | None = None,
) -> Path:
    """Write the explorer of a run into one HTML file, and return its path.

    Args:
        run: a run with log-probabilities.
        path: the file; it is replaced if it exists.
        alpha: where the slider stands first.
        source: the file or folder from which the run was read. The page stores a digest of it.
        rules: what makes an answer right.
        methods: the methods that are compared with PRO; None for all.

    Raises:
        ValueError: if `alpha` is outside [0, 1] or below the α of an exact search, or `path` is
            empty, or a method cannot be computed.
        RunError: if the run has texts without log-probabilities.
    """
    not_empty(path, "path")
    scoring.check_alpha(alpha, search_alpha=run.search_alpha)
    try:
        comparison = comparison_data(run, alpha=alpha, rules=rules, methods=methods)
    except RunError as error:
        comparison = {"why": str(error)}
    data = [run_data(run, alpha=alpha, rules=rules), comparison]
    json_text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    template = string.Template(_TEMPLATE.read_text(encoding="utf-8"))
    page = template.substitute(
        title=html.escape(run.name),
        # In JSON, < occurs in texts only. Escaped, it cannot end the script element.
        data=json_text.replace("<", "\\u003c"),
        styles=STYLES.read_text(encoding="utf-8"),
        javascript=read_javascript(),
        generator=_GENERATOR,
        source="" if source is None else source_digest(source),
    )
    write_whole(page.encode(), Path(path))
    return Path(path)


def source_digest(path: str | Path) -> str:
    """Return eight digits that identify the path of a file or folder, with links resolved."""
    return sha256(os.fsencode(os.path.realpath(path)))[:8]


def page_source(path: Path) -> str | None:
    """Return the digest of the run or file from which a page was made, as in `source_digest`.

    It is the empty text if the page was written without a source, and None if the file is not a
    page of `to_html`.
    """
    with open(path, "rb") as file:
        head = file.read(2000)
    match = _META_ELEMENTS.search(head)
    if match is None or match[1] != _GENERATOR.encode():
        return None
    return match[2].decode()
