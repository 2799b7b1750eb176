"""Brings into the site what lies outside docs/: README, changelog, datasheets, notebooks, figures; knows no content.

Pages link to such files by their place in the repository (`../figures/x.png`), so that they read right on a
code-hosting page too. Here these links are turned to where the file is on the site. API pages are one line each.
"""

import posixpath
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
MODELS = tuple(f"data/models/{name}" for name in ("facts-2m", "facts-1m", "facts-long"))
DATASHEETS = ("data/paper", "data/world_facts", *MODELS)
# Where a Markdown file outside docs/ goes; notebooks and modules follow from their names.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
PAGES |= {f"{folder}/README.md": f"data/{Path(folder).name}.md" for folder in DATASHEETS}
NOTEBOOKS = {f"notebooks/{p.name}": f"notebooks/{p.stem}.md" for p in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))}
# Plain modules, then rooms, each with its modules behind its door.
HALL = {f"pro_lib/{p.name}": f"api/{p.stem}.md" for p in sorted((ROOT / "pro_lib").glob("[a-z]*.py"))}
DOORS = sorted((ROOT / "pro_lib").glob("*/__init__.py"))
ROOMS = {f"pro_lib/{p.parent.name}/__init__.py": f"api/{p.parent.name}.md" for p in DOORS}
MODULES = HALL | ROOMS
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and every other file that a page links to."""
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts |= {name: (ROOT / name).read_text() for name in PAGES}
    texts |= {name: notebook_page(ROOT / name) for name in NOTEBOOKS}
    for name, site in (PAGES | NOTEBOOKS).items():
        files.append(File.generated(config, site, content=texts[name]))
    for name, site in MODULES.items():
        files.append(File.generated(config, site, content=api_page(name)))
    files.append(File.generated(config, "api/index.md", content=api_index()))
    linked = {target for name, text in texts.items() for target in targets(name, text)}
    for target in sorted(linked - {*PAGES, *NOTEBOOKS, *MODULES}):
        if not target.startswith("docs/"):
            files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to where their files are on the site; a page without neighbours needs no list of them."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    sources = {site: name for name, site in (PAGES | NOTEBOOKS).items()}
    name = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(match: re.Match) -> str:
        start, target, anchor, end = match.groups()
        site = place(resolved(name, target))
        return f"{start}{posixpath.relpath(site, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''}{end}"

    return outside_code(unescaped(markdown), lambda text: LINK.sub(turned, text))


def targets(name: str, text: str) -> set[str]:
    """Files of the repository, by their path in it, that a page links to; those that are not there are an error."""
    found = set()
    outside_code(text, lambda part: found.update(resolved(name, match[2]) for match in LINK.finditer(part)) or part)
    for target in found:
        if not (ROOT / target).is_file() and not target.startswith("docs/api/"):
            raise PluginError(f"{name} links to {target}, which is not a file")
    return found


def resolved(name: str, target: str) -> str:
    """Path in the repository of what the file `name` links to as `target`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def place(path: str) -> str:
    """Where a file of the repository is on the site."""
    return (PAGES | NOTEBOOKS | MODULES).get(path, path.removeprefix("docs/"))


def unescaped(markdown: str) -> str:
    """The text with `\\|` in code in tables as `|`: this Markdown wants no backslash there, code hosts do."""
    rows = re.compile(r"^\|.*$", re.MULTILINE)
    return rows.sub(lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), row[0]), markdown)


def outside_code(text: str, change) -> str:
    """The text with what is not code changed by the function."""
    return "".join(part if number % 2 else change(part) for number, part in enumerate(CODE.split(text)))


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and below a cell that saves a figure the committed figure."""
    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for figure in re.findall(r'figures\.save\([^"]*"(\w+)"', cell.source):
            parts.append(f"![{figure}](../figures/{figure}.png)\n\n[PNG](../figures/{figure}.png) · ")
            parts[-1] += f"[SVG](../figures/{figure}.svg) · [numbers](../figures/{figure}.csv)"
    title, _, rest = parts[0].partition("\n")
    note = f"`notebooks/{path.name}`, not executed here; the figures are those committed in `figures/`."
    return "\n\n".join([title, note, rest.strip(), *parts[1:]]) + "\n"


def api_page(name: str) -> str:
    """What is documented of a module, or of a room and its modules."""
    parts = [name] if name in HALL else [name, *(f"pro_lib/{p.parent.name}/{p.name}" for p in inside(name))]
    dotted = [part.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for part in parts]
    pages = [f"# {dotted[0]}\n\n::: {dotted[0]}\n    options: {{members: {str(name in HALL).lower()}}}"]
    return "\n\n".join(pages + [f"## {module}\n\n::: {module}" for module in dotted[1:]]) + "\n"


def inside(name: str) -> list[Path]:
    """The modules of a room."""
    return sorted((ROOT / name).parent.glob("[a-z]*.py"))


def api_index() -> str:
    """The list of modules and rooms, each with the first sentence of its contract and its lines."""
    lines = [
        "# API reference\n",
        "Made from the docstrings. `n` questions, `N` answers each, `T` tokens, `V` vocabulary; log-probabilities and",
        "entropies in nats; uncertainty: higher = more uncertain. Names with an underscore are not for use.\n",
        "`import pro_lib` loads nothing but itself: modules load on first use, and `pro_lib.ask` is `asking.ask`.\n",
        "| module or room (/) | | lines |\n|---|---|---|",
    ]
    for name, site in MODULES.items():
        contract = re.match(r'"""(.*?)(?:\n\n|"""$)', (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)[1]
        sentence = re.match(r".*?\.(?=\s|$)|.*", " ".join(contract.split()))[0]
        files = [ROOT / name, *([] if name in HALL else inside(name))]
        length = sum(len(file.read_text().splitlines()) for file in files)
        title = Path(site).stem + ("" if name in HALL else "/")
        lines.append(f"| [{title}]({posixpath.basename(site)}) | {sentence} | {length} |")
    return "\n".join(lines) + "\n"
