"""Executed notebooks as Markdown, and what of them the gallery shows; knows cells and outputs, and no other page."""

import re
from pathlib import Path

import nbformat
from formulas import PageError
from nbconvert import MarkdownExporter

STORED = re.compile(r'(?:experiment\.store|experiment\.save|plots\.save)\([^"]*?"(\d\d_\w+)"')
# A warning names the file that warned, whose place is this machine's, and its line of code.
WARNING = re.compile(r"^\S+\.py:\d+: (\w+: .*)$", re.MULTILINE)
WIDGET = "application/vnd.jupyter.widget-view+json"
EXPLORER = """\
<iframe class="explorer" src="{place}explorer.html" title="The explorer" loading="lazy"></iframe>

[Open the explorer alone]({place}explorer.html): one file, which works without a server or a network, too.
"""

FOLDED = """\
<details markdown="1"><summary>Parameters</summary>

```python
{}
```

</details>"""


def executed(source: Path, copy: Path) -> bool:
    """Whether the copy is the notebook as it stands now, executed from its first cell to its last."""
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
    """A notebook as Markdown, with the outputs of its executed copy; pictures of its own go to the folder.

    A figure that is stored stands there as it is committed, with its numbers. Raises `PageError` for a place of this
    machine in what a cell shows.
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
    if place := re.search(r"\S*(?:/home/|/root/|/tmp/|/Users/)\S*", text):
        raise PageError(f"{source.name} shows a place of this machine: {place[0][:80]!r}")
    for name, picture in resources["outputs"].items():
        (folder / name).write_bytes(picture)
    title, _, rest = text.strip().partition("\n")
    how = "executed with the parameters it comes with" if copy else "not executed here"
    note = f"`notebooks/{source.name}`, {how}; the figures are those committed in `figures/`."
    return f"{title}\n\n{note}\n{rest}\n"


def figures(code: str) -> list[str]:
    """The figures that a cell stores, by name; a table that is stored without one is none."""
    root = Path(__file__).resolve().parents[2]
    return [name for name in STORED.findall(code) if (root / "figures" / f"{name}.png").is_file()]


def _shown(output: nbformat.NotebookNode, stored: list[str]) -> list[nbformat.NotebookNode]:
    """What a page shows of an output: no progress, a warning without its place, tables in the style of the site."""
    if output.output_type == "stream":
        said = output.text if output.name == "stdout" else "\n".join(WARNING.findall(output.text))
        return (
            [
                _markdown(
                    f'<div class="said" markdown="1">\n\n```text\n{said.strip()}\n```\n\n</div>'
                )
            ]
            if said
            else []
        )
    if WIDGET in output.data:
        return [_markdown(EXPLORER.format(place="../"))]
    if "image/png" in output.data and stored:
        return [_markdown("\n\n".join(map(_figure, stored)))]
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
    return f"![{name}]({place}.png)\n\n[PNG]({place}.png) · [SVG]({place}.svg) · [numbers]({place}.csv)"


def title(source: Path) -> str:
    """The heading that a notebook begins with."""
    return nbformat.read(source, as_version=4).cells[0].source.partition("\n")[0].removeprefix("# ")


def what_to_see(source: Path) -> dict[str, tuple[str, str]]:
    """Of each figure the heading it stands under and the sentence that says what is to be seen in it."""
    heading, text, said = "", "", {}
    for cell in nbformat.read(source, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE) or [heading])[-1]
            text = " ".join(
                re.sub(r"^#.*$|\$\$.*?\$\$", "", cell.source, flags=re.MULTILINE).split()
            )
        for name in figures(cell.source) if cell.cell_type == "code" else []:
            sentence = re.match(
                r".*?[.:](?= [^a-zα]|$)", text.partition("**What to see:** ")[2] or text
            )[0][:-1]
            said[name] = heading, re.sub("^[a-z]", lambda first: first[0].upper(), sentence) + "."
    return said
