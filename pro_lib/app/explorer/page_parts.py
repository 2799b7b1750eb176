"""Parts that all pages of the package have: JavaScript, styles, and the reply after an error.

A widget and a page that works as one file both need a single module. The modules in the folder
`javascript` use names of each other by `import` lines, which joining makes superfluous.
"""

import re
from pathlib import Path

STYLES = Path(__file__).with_name("explorer.css")
FOLDER = Path(__file__).with_name("javascript")
# A module follows those that it imports. No two modules may define the same name.
MODULES = (
    "numbers",
    "formats",
    "elements",
    "charts",
    "run_view",
    "question_charts",
    "question_panel",
    "search_tree",
    "questions_tab",
    "ask_tab",
    "compare_tab",
    "label_tab",
    "label_page",
    "explorer",
    "in_view",
    "widget",
)
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)


def read_javascript() -> str:
    """Return the modules of the explorer as one ES module, which exports the names of all."""
    paths = [FOLDER / f"{name}.js" for name in MODULES]
    modules = [path.read_text(encoding="utf-8") for path in paths]
    return _IMPORT.sub("", "\n".join(modules))


def error_reply(kind: str, error: Exception) -> dict[str, str]:
    """Return the reply to a message of the page that has raised an error.

    Users of the page would not see a traceback. An error of the package needs no type.
    """
    is_sentence = isinstance(error, ValueError)
    text = str(error) if is_sentence else f"{type(error).__name__}: {error}"
    return {"kind": "error", "of": kind, "status": text}
