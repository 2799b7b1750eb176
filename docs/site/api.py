"""The API as Markdown: signatures and docstrings as griffe reads them; knows modules and rooms, and no other page."""

import re
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
# Plain modules, then rooms, each with its modules behind its door.
HALL = {f"pro_lib/{p.name}": f"api/{p.stem}.md" for p in sorted((ROOT / "pro_lib").glob("[a-z]*.py"))}
DOORS = sorted((ROOT / "pro_lib").glob("*/__init__.py"))
MODULES = HALL | {f"pro_lib/{p.parent.name}/__init__.py": f"api/{p.parent.name}.md" for p in DOORS}
WIDTH = 100


def page(name: str) -> str:
    """Return what is documented of a module, or of a room and what is behind its door, below an example if any."""
    parts = [name, *(f"pro_lib/{path.parent.name}/{path.name}" for path in inside(name))]
    modules = [part.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for part in parts]
    example = ROOT / "docs" / "examples" / f"{modules[0].partition('.')[2]}.md"
    own, *others = (_module(dotted, level=2 if place == 0 else 3) for place, dotted in enumerate(modules))
    contract, _, members = own.partition("\n\n\n")
    pages = [f"# {modules[0]}", contract, *([example.read_text().strip()] if example.is_file() else []), members]
    pages += [f"## {dotted}\n\n{text}" for dotted, text in zip(modules[1:], others, strict=True)]
    return "\n\n".join(pages) + "\n"


def index() -> str:
    """The list of modules and rooms, each with the first sentence of its contract and its lines."""
    lines = [
        "# API reference\n",
        "Made from the docstrings. `n` questions, `N` answers each, `T` tokens, `V` vocabulary; log-probabilities and",
        "entropies in nats; uncertainty: higher = more uncertain. These pages list what is public, and no more.\n",
        "`import pro_lib` loads nothing but itself: modules load on first use, and `pro_lib.ask` is `asking.ask`.\n",
        "| module or room (/) | | lines |\n|---|---|---|",
    ]
    for name, site in MODULES.items():
        contract = re.match(r'"""(.*?)(?:\n\n|"""$)', (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)[1]
        sentence = re.match(r".*?\.(?=\s|$)|.*", " ".join(contract.split()))[0]
        length = sum(len(file.read_text().splitlines()) for file in [ROOT / name, *inside(name)])
        title = Path(site).stem + ("" if name in HALL else "/")
        lines.append(f"| [{title}]({Path(site).name}) | {sentence} | {length} |")
    return "\n".join(lines) + "\n"


def inside(name: str) -> list[Path]:
    """The modules of a room; none of a plain module."""
    return [] if name in HALL else sorted((ROOT / name).parent.glob("[a-z]*.py"))


@cache
def _package() -> griffe.Module:
    return griffe.load("pro_lib", search_paths=[ROOT], docstring_parser="google")


def _module(dotted: str, *, level: int) -> str:
    """What a module says of itself and, two empty lines below, what is defined in it and documented."""
    module = _package()[dotted.partition(".")[2]]
    return "\n\n".join([_said(module), "", *_members(module, level)])


def _members(of: griffe.Object, level: int) -> list[str]:
    own = [each for each in of.members.values() if not each.is_alias and not each.name.startswith("_")]
    own = [each for each in own if each.has_docstring and not each.is_module]
    return [part for each in sorted(own, key=lambda each: each.lineno) for part in _entry(each, level)]


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
    text = ("class " if of.is_class else "") + init.signature(name=of.name, return_type=not of.is_class)
    if len(text) <= WIDTH or not own:
        return text
    start, end = text.index("(") + 1, text.rindex(")" if of.is_class or not init.returns else f") -> {init.returns}")
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
    return "\n".join([f"**{section.kind.value.title()}**\n", *(f"- {_item(item)}" for item in section.value)])


def _item(item: griffe.DocstringElement) -> str:
    """An item with its name; an exception is named by its type, what is returned has none."""
    name = getattr(item, "name", "") or (str(item.annotation) if isinstance(item, griffe.DocstringRaise) else "")
    return (f"`{name}`: " if name else "") + " ".join(item.description.split())
