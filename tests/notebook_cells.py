"""The functions that notebooks define in their cells, for tests."""

import ast

import nbformat
from conftest import ROOT


def of_notebook(number, name, **names):
    """The function of this name, with what its notebook imports, its cell defines and `names` bring."""
    [path] = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    imports, *cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    body = ast.parse(next(source for source in cells if f"def {name}(" in source)).body
    taken = [part for part in body if isinstance(part, ast.FunctionDef) or ast.unparse(part).startswith("CHOICES")]
    exec(imports, names)
    exec(compile(ast.Module(taken, []), str(path), "exec"), names)
    return names[name]
