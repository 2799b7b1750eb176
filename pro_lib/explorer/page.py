"""A run's explorer as one file that opens by double click; knows data and the JavaScript, no kernel and no network."""

import html
import json
import string
from pathlib import Path

from pro_lib.explorer.data import comparison, run_data
from pro_lib.files import RunError, write_whole
from pro_lib.runs import Run

PAGE, JAVASCRIPT, STYLES = (Path(__file__).with_name(f"explorer.{kind}") for kind in ("html", "js", "css"))


def to_html(run: Run, path: str | Path, *, alpha: float = 0.4, samples: Run | None = None) -> Path:
    """Write the explorer of a run into one file, which needs no server, kernel or network; return its path.

    The slider stands at `alpha`. Methods that need samples are compared where `samples`, a run of samples of the same
    questions, are given.
    """
    try:
        methods = comparison(run, samples)
    except RunError as error:
        methods = {"why": str(error)}
    # In JSON, < occurs in texts only, and there it may be written so; nothing can then end the element it stands in.
    data = json.dumps([run_data(run, alpha=alpha), methods], ensure_ascii=False, allow_nan=False)
    data = data.replace("<", "\\u003c")
    styles, javascript, page = (file.read_text(encoding="utf-8") for file in (STYLES, JAVASCRIPT, PAGE))
    page = string.Template(page).substitute(
        title=html.escape(run.name), styles=styles, data=data, javascript=javascript
    )
    write_whole(page.encode(), Path(path))
    return Path(path)
