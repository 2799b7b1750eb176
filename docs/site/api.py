"""Write the API reference as Markdown, one page per package, from the docstrings."""

import re
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in (ROOT / "pro_lib").glob("[a-z]*/__init__.py"))
MODULES = {f"pro_lib/{folder.name}/__init__.py": f"api/{folder.name}.md" for folder in FOLDERS}
WIDTH = 100


def page(name: str) -> str:
    """Return the page of a package: its public names, then the examples and docs of its modules."""
    package = _dotted(ROOT / name)
    public = ", ".join(f"`{public_name}`" for public_name in _public_names(ROOT / name))
    parts = [
        f"# {package}",
        _docstring(_package()[package.partition(".")[2]]),
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
    """Return the list of packages and modules with their first sentences."""
    lines = [
        "# Python API\n",
        "This reference lists all public names. It is generated from the docstrings, which use",
        "these symbols: `n` questions, `N` answers to each, `T` tokens, `V` vocabulary size.",
        "Log-probabilities and entropies are in nats. A higher uncertainty means more uncertain.\n",
        "`import pro_lib` is fast because it loads no other package. It offers these names, which",
        "are loaded on first use:",
        ", ".join(f"`{name}`" for name in _public_names(ROOT / "pro_lib" / "__init__.py")) + ".\n",
        "| package or module | |\n|---|---|",
    ]
    for name, site in MODULES.items():
        lines.append(
            f"| [**{Path(site).stem}**]({Path(site).name}) | {_first_sentence(ROOT / name)} |"
        )
        lines += [
            f"| {_dotted(path).partition('.')[2]} | {_first_sentence(path)} |"
            for path in inside(name)
        ]
    return "\n".join(lines) + "\n"


def inside(name: str) -> list[Path]:
    """Return the modules of a package and of its subpackages."""
    return sorted((ROOT / name).parent.rglob("[a-z]*.py"))


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _first_sentence(path: Path) -> str:
    docstring = re.match(r'"""(.*?)(?:\n\n|"""$)', path.read_text(), re.DOTALL | re.MULTILINE)[1]
    return re.match(r".*?\.(?=\s|$)|.*", " ".join(docstring.split()))[0]


def _public_names(path: Path) -> list[str]:
    text = max(path.parent.glob("__init__.py*")).read_text()  # the stub `.pyi`, if there is one
    listed = re.search(r"(?sm)^__all__ = \[(.*?)\]", text)[1]
    return re.findall(r'"(\w+)"', listed)


@cache
def _package() -> griffe.Module:
    return griffe.load("pro_lib", search_paths=[ROOT], docstring_parser="google")


def _module(dotted: str) -> str:
    """Return the docstring of a module, then its documented members."""
    module = _package()[dotted.partition(".")[2]]
    return "\n\n".join([_docstring(module), *_members(module, 3)])


def _members(parent: griffe.Object, level: int) -> list[str]:
    members = [
        member
        for member in parent.members.values()
        if not member.is_alias and not member.name.startswith("_")
    ]
    members = [member for member in members if member.has_docstring and not member.is_module]
    members.sort(key=lambda member: member.lineno)
    return [part for member in members for part in _entry(member, level)]


def _entry(member: griffe.Object, level: int) -> list[str]:
    """Return a heading with the dotted name as anchor, the signature, the docstring and members."""
    parent = member.parent
    name = member.name if parent.is_module else f"{parent.name}.{member.name}"
    heading = f'{"#" * level} <a id="{member.path}"></a>{name}'
    entry = [heading, f"```python\n{_signature(member)}\n```", _docstring(member)]
    return [*entry, *_members(member, level + 1)] if member.is_class else entry


def _signature(member: griffe.Object) -> str:
    """Return the signature, with one parameter a line if it is too long."""
    if member.is_attribute:
        ending = f": {member.annotation}" if member.annotation else f" = {member.value}"
        return member.name + ending
    function = member.members.get("__init__") if member.is_class else member
    if function is None or function.is_alias:
        return f"class {member.name}({', '.join(map(str, member.bases))})".replace("()", "")
    parameters = [item for item in function.parameters if item.name not in ("self", "cls")]
    function.parameters = griffe.Parameters(*parameters)
    text = function.signature(name=member.name, return_type=not member.is_class)
    if member.is_class:
        text = f"class {text}"
    if len(text) <= WIDTH or not parameters:
        return text
    has_returns = function.returns and not member.is_class
    start = text.index("(") + 1
    end = text.rindex(f") -> {function.returns}" if has_returns else ")")
    parts = re.split(r", (?=(?:\*|/|\*{0,2}[a-z_]\w*(?::|=|,|$)))", text[start:end])
    return text[:start] + "".join(f"\n    {part}," for part in parts) + "\n" + text[end:]


def _docstring(member: griffe.Object) -> str:
    """Return the docstring, with its sections as lists."""
    if not member.docstring:
        return ""
    return "\n\n".join(_section(section) for section in member.docstring.parsed)


def _section(section: griffe.DocstringSection) -> str:
    if isinstance(section.value, str):
        return section.value
    if isinstance(section, griffe.DocstringSectionAdmonition):  # such as "Example:"
        return f"**{section.title}**\n\n```python\n{section.value.description}\n```"
    return "\n".join(
        [f"**{section.kind.value.title()}**\n", *(f"- {_item(item)}" for item in section.value)]
    )


def _item(item: griffe.DocstringElement) -> str:
    """Return an item with its name; an exception has its type as name, a return value has none."""
    name = getattr(item, "name", "") or (
        str(item.annotation) if isinstance(item, griffe.DocstringRaise) else ""
    )
    return (f"`{name}`: " if name else "") + " ".join(item.description.split())
