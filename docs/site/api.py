"""The API as Markdown: signatures and docstrings as griffe reads them, a page for each package."""

import re
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "pro_lib").glob("[a-z]*/__init__.py"))
MODULES = {f"pro_lib/{folder.name}/__init__.py": f"api/{folder.name}.md" for folder in FOLDERS}
WIDTH = 100


def page(name: str) -> str:
    """Return the page of a package: its public names, then what its modules document, below an example if any."""
    package = _dotted(ROOT / name)
    public = ", ".join(f"`{each}`" for each in _public_names(ROOT / name))
    parts = [
        f"# {package}",
        _said(_package()[package.partition(".")[2]]),
        f"Public names: {public}.",
    ]
    for path in inside(name):
        dotted = _dotted(path)
        example = ROOT / "docs" / "examples" / f"{dotted.partition('.')[2]}.md"
        parts += [
            f"## {dotted}",
            *([example.read_text().strip()] if example.is_file() else []),
            _module(dotted),
        ]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The list of packages and modules, each with the first sentence of its docstring and its lines."""
    lines = [
        "# API reference\n",
        "Made from the docstrings. `n` questions, `N` answers each, `T` tokens, `V` vocabulary; log-probabilities and",
        "entropies in nats; uncertainty: higher = more uncertain. These pages list what is public, and no more.\n",
        "`import pro_lib` loads nothing but itself. These names are at its root, and load on first use:",
        ", ".join(f"`{name}`" for name in _public_names(ROOT / "pro_lib" / "__init__.py")) + ".\n",
        "| package or module | | lines |\n|---|---|---|",
    ]
    for name, site in MODULES.items():
        own = [ROOT / name, *inside(name)]
        total = sum(len(file.read_text().splitlines()) for file in own)
        lines.append(
            f"| [**{Path(site).stem}**]({Path(site).name}) | {_first_sentence(ROOT / name)} | {total} |"
        )
        for path in inside(name):
            length = len(path.read_text().splitlines())
            lines.append(
                f"| {_dotted(path).partition('.')[2]} | {_first_sentence(path)} | {length} |"
            )
    return "\n".join(lines) + "\n"


def inside(name: str) -> list[Path]:
    """The modules of a package and of the packages within it."""
    return sorted((ROOT / name).parent.rglob("[a-z]*.py"))


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _first_sentence(path: Path) -> str:
    docstring = re.match(r'"""(.*?)(?:\n\n|"""$)', path.read_text(), re.DOTALL | re.MULTILINE)[1]
    return re.match(r".*?\.(?=\s|$)|.*", " ".join(docstring.split()))[0]


def _public_names(path: Path) -> list[str]:
    listed = re.search(r"^__all__ = \[(.*?)\]", path.read_text(), re.DOTALL | re.MULTILINE)[1]
    return re.findall(r'"(\w+)"', listed)


@cache
def _package() -> griffe.Module:
    return griffe.load("pro_lib", search_paths=[ROOT], docstring_parser="google")


def _module(dotted: str) -> str:
    """What a module says of itself and what is defined in it and documented."""
    module = _package()[dotted.partition(".")[2]]
    return "\n\n".join([_said(module), *_members(module, 3)])


def _members(of: griffe.Object, level: int) -> list[str]:
    own = [
        each for each in of.members.values() if not each.is_alias and not each.name.startswith("_")
    ]
    own = [each for each in own if each.has_docstring and not each.is_module]
    return [
        part for each in sorted(own, key=lambda each: each.lineno) for part in _entry(each, level)
    ]


def _entry(of: griffe.Object, level: int) -> list[str]:
    """A heading that can be linked to by the dotted name, the signature, the docstring; of a class its members too."""
    name = of.name if of.parent.is_module else f"{of.parent.name}.{of.name}"
    heading = f'{"#" * level} <a id="{of.path}"></a>{name}'
    entry = [heading, f"```python\n{_signature(of)}\n```", _said(of)]
    return [*entry, *_members(of, level + 1)] if of.is_class else entry


def _signature(of: griffe.Object) -> str:
    """The call, a parameter a line where it is too long for one."""
    if of.is_attribute:
        return of.name + (f": {of.annotation}" if of.annotation else f" = {of.value}")
    init = of.members.get("__init__") if of.is_class else of
    if init is None or init.is_alias:
        return f"class {of.name}({', '.join(map(str, of.bases))})".replace("()", "")
    own = [each for each in init.parameters if each.name not in ("self", "cls")]
    init.parameters = griffe.Parameters(*own)
    text = ("class " if of.is_class else "") + init.signature(
        name=of.name, return_type=not of.is_class
    )
    if len(text) <= WIDTH or not own:
        return text
    start, end = (
        text.index("(") + 1,
        text.rindex(")" if of.is_class or not init.returns else f") -> {init.returns}"),
    )
    parts = re.split(r", (?=(?:\*|/|\*{0,2}[a-z_]\w*(?::|=|,|$)))", text[start:end])
    return text[:start] + "".join(f"\n    {part}," for part in parts) + "\n" + text[end:]


def _said(of: griffe.Object) -> str:
    """The docstring; of its sections those that list something as lists."""
    return "\n\n".join(_section(section) for section in of.docstring.parsed) if of.docstring else ""


def _section(section: griffe.DocstringSection) -> str:
    if isinstance(section.value, str):
        return section.value
    if isinstance(section, griffe.DocstringSectionAdmonition):  # such as "Example:"
        return f"**{section.title}**\n\n```python\n{section.value.description}\n```"
    return "\n".join(
        [f"**{section.kind.value.title()}**\n", *(f"- {_item(item)}" for item in section.value)]
    )


def _item(item: griffe.DocstringElement) -> str:
    """An item with its name; an exception is named by its type, what is returned has none."""
    name = getattr(item, "name", "") or (
        str(item.annotation) if isinstance(item, griffe.DocstringRaise) else ""
    )
    return (f"`{name}`: " if name else "") + " ".join(item.description.split())
