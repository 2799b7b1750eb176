"""Convert executed notebooks to Markdown, and collect their figures for the gallery."""

import re
from pathlib import Path

import nbformat
from formulas import PageError
from nbconvert import MarkdownExporter

from pro_lib.plots import read_caption

ROOT = Path(__file__).resolve().parents[2]
STORED = re.compile(r'(?:experiment\.store|experiment\.save|plots\.save)\([^"]*?"(\d\d_\w+)"')
# A warning begins with the path of a file on this machine and ends with a line of its code.
WARNING = re.compile(r"^\S+\.py:\d+: (\w+: .*)$", re.MULTILINE)
WIDGET = "application/vnd.jupyter.widget-view+json"
EXPLORER = """\
<iframe class="explorer" src="{place}explorer.html" title="The explorer" loading="lazy"></iframe>

[Open the explorer in a page of its own]({place}explorer.html), one file that needs no server and no
network.
"""

FOLDED = """\
<details markdown="1"><summary>Parameters</summary>

```python
{}
```

</details>"""


def executed(source: Path, copy: Path) -> bool:
    """Return whether the copy has the notebook's present code and was executed without an error."""
    if not copy.is_file():
        return False
    cells = _code(nbformat.read(copy, as_version=4))
    same = [cell.source for cell in _code(nbformat.read(source, as_version=4))] == [
        cell.source for cell in cells
    ]
    failed = any(output.output_type == "error" for cell in cells for output in cell.outputs)
    return same and not failed and all(cell.execution_count for cell in cells)


def _code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def page(source: Path, copy: Path | None, folder: Path) -> str:
    """Return a notebook as Markdown, with the outputs of its executed copy.

    A stored figure is shown as it is committed, with links to its numbers. Other pictures are
    written into the folder.

    Raises:
        PageError: if an output shows a path of this machine.
    """
    notebook = nbformat.read(source, as_version=4)
    ran = _code(nbformat.read(copy or source, as_version=4))
    for cell, done in zip(_code(notebook), ran, strict=True):
        cell.outputs = [
            shown for output in done.outputs for shown in _shown(output, figures(cell.source))
        ]
        cell.outputs += [] if copy else [_markdown(_figure(name)) for name in figures(cell.source)]
        if "parameters" in cell.metadata.get("tags", []):
            cell.update(cell_type="markdown", source=FOLDED.format(cell.source))
    text, resources = MarkdownExporter().from_notebook_node(notebook, {"unique_key": source.stem})
    local_path = re.search(r"\S*(?:/home/|/root/|/tmp/|/Users/)\S*", text)
    if local_path:
        raise PageError(f"{source.name} shows a path of this machine: {local_path[0][:80]!r}")
    for name, picture in resources["outputs"].items():
        (folder / name).write_bytes(picture)
    title, _, rest = text.strip().partition("\n")
    how = "was executed with its default parameters" if copy else "was not executed for this page"
    note = f"`notebooks/{source.name}` {how}. The figures are those in `figures/`."
    return f"{title}\n\n{note}\n{rest}\n"


def figures(code: str) -> list[str]:
    """Return the names of the figures that a cell stores; tables without a figure are left out."""
    return [name for name in STORED.findall(code) if (ROOT / "figures" / f"{name}.png").is_file()]


def _shown(output: nbformat.NotebookNode, stored: list[str]) -> list[nbformat.NotebookNode]:
    """Return an output for a page, without progress bars and paths, in the site's style."""
    if output.output_type == "stream":
        text = output.text if output.name == "stdout" else "\n".join(WARNING.findall(output.text))
        if not text:
            return []
        block = f"```text\n{text.strip()}\n```"
        return [_markdown(f'<div class="said" markdown="1">\n\n{block}\n\n</div>')]
    if WIDGET in output.data:
        return [_markdown(EXPLORER.format(place="../"))]
    if "image/png" in output.data and stored:
        return [_markdown("\n\n".join(map(_figure, stored)))]
    if stored and output.data.get("text/markdown") in [caption(f"figures/{n}") for n in stored]:
        return []  # the caption is below the stored figure
    if "text/html" in output.data:
        table = re.sub(r"(?s)<style.*?</style>|\n\s*", "", output.data["text/html"])
        output = _markdown(
            re.sub(r"<table[^>]*>", "<table>", table).replace("<div>", '<div class="frame">', 1)
        )
    return [output]


def _markdown(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", {"text/markdown": text})


def _figure(name: str) -> str:
    place = f"../figures/{name}"
    text = caption(f"figures/{name}")
    links = f"[PNG]({place}.png) · [SVG]({place}.svg) · [numbers]({place}.csv)"
    return "\n\n".join(filter(None, [f"![{name}]({place}.png)", text, links]))


def caption(figure: str) -> str:
    """Return the caption of a figure, whose path has no ending; empty without one."""
    path = ROOT / f"{figure}.md"
    return read_caption(path) if path.is_file() else ""


def with_captions(text: str) -> str:
    """Return a page with the caption of each figure below its picture."""
    picture = re.compile(r"^!\[[^\]]*\]\((?:\.\./)*(figures/[^)]+)\.png\)$", re.MULTILINE)
    return picture.sub(lambda found: f"{found[0]}\n\n{caption(found[1])}".strip(), text)


def title(source: Path) -> str:
    """Return the first heading of a notebook."""
    return nbformat.read(source, as_version=4).cells[0].source.partition("\n")[0].removeprefix("# ")


def headings(source: Path) -> dict[str, str]:
    """Return the heading above each figure of a notebook."""
    heading = ""
    found = {}
    for cell in nbformat.read(source, as_version=4).cells:
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE)
            heading = headings[-1] if headings else heading
        elif cell.cell_type == "code":
            found |= dict.fromkeys(figures(cell.source), heading)
    return found
