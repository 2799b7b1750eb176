"""The site is built without warnings from plain Markdown pages and needs no network."""

import ast
import functools
import http.server
import posixpath
import re
import shutil
import subprocess
import sys
import threading
from importlib import import_module

import pytest
import yaml
from conftest import ROOT
from formulas import PageError, typeset
from redirects import read_redirects

NOTEBOOK = ROOT / "notebooks" / "00_explore_examples.ipynb"
MODULES = sorted((ROOT / "pro_lib").rglob("[a-z]*.py"))
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


@pytest.fixture(scope="module")
def cells():
    """The module that converts notebooks, whose packages take seconds to import."""
    return import_module("cells")


@pytest.fixture(scope="module")
def pages():
    """The module that writes the pages."""
    return import_module("pages")


# ---- Formulas ------------------------------------------------------------------------------------


def test_formulas_become_mathml():
    assert "<msub><mi>p</mi><mi>K</mi></msub>" in typeset("The sum of $p_K$ is 1.")
    display = typeset("$$\\frac{1}{2}, \\qquad K = 1$$")  # wide spaces separate blocks
    assert display.count('display="block"') == display.count("<math") == 2
    for text in ("`$p_K$`", "```sh\necho $HOME $PATH\n```", "costs $5, or 6 $ more"):
        assert typeset(f"Text:\n\n{text}\n") == f"Text:\n\n{text}\n"
    with pytest.raises(PageError, match="DoubleSubscriptsError: 'p_1_2'"):
        typeset("so $p_1_2$")


# ---- Pages of notebooks --------------------------------------------------------------------------


def write_executed_copy(folder, *, cell=4, outputs=(), **changes):
    """Write a copy of a notebook as if executed, with outputs of one cell; change its first."""
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code_cells = [part for part in notebook.cells if part.cell_type == "code"]
    for code_cell in code_cells:
        code_cell.execution_count = 1
    code_cells[cell].outputs = list(outputs)
    code_cells[0].update(changes)
    nbformat.write(notebook, folder / NOTEBOOK.name)
    return folder / NOTEBOOK.name


def output(kind, data=None, **fields):
    """Return an output of a notebook."""
    from nbformat.v4 import new_output

    return new_output(kind, data, **fields)


@pytest.fixture
def convert(cells, tmp_path):
    """Convert the notebook to a page, with one output of one of its code cells."""

    def page(output, *, cell=4):
        copy = write_executed_copy(tmp_path, cell=cell, outputs=[output])
        return cells.page(NOTEBOOK, copy, tmp_path)

    return page


def test_only_a_copy_that_was_executed_as_the_notebook_is_accepted(cells, tmp_path):
    assert cells.executed(NOTEBOOK, write_executed_copy(tmp_path))
    assert not cells.executed(NOTEBOOK, tmp_path / "none.ipynb")
    error = output("error", ename="E", evalue="", traceback=[])
    for changes in ({"source": "1 + 1"}, {"execution_count": None}, {"outputs": [error]}):
        copy = write_executed_copy(tmp_path, **changes)
        assert not cells.executed(NOTEBOOK, copy), changes


def test_printed_text_and_warnings_are_shown_without_paths(convert):
    assert "```text\n9 questions\n```" in convert(
        output("stream", name="stdout", text="9 questions\n")
    )
    warning = "/home/me/pro_lib/x.py:31: PremiseWarning: 1 of 3 has a mass above 1.\n"
    page = convert(
        output("stream", name="stderr", text=f"{warning}  scores.pro(x)\n 40%|##| 2/5\n")
    )
    assert "```text\nPremiseWarning: 1 of 3 has a mass above 1.\n```" in page
    assert not re.search(r"/home|2/5", page)
    with pytest.raises(PageError, match="'/home/me/figures'"):
        convert(output("stream", name="stdout", text="kept in /home/me/figures\n"))


def test_tables_widgets_and_figures_are_shown(convert):
    table = '<style scoped></style><div><table border="1"><tr></tr></table></div>'
    page = convert(output("display_data", {"text/html": table}))
    assert '<div class="frame"><table><tr></tr></table></div>' in page
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Explorer()"}
    page = convert(output("display_data", widget))
    assert 'src="../explorer.html"' in page
    assert "Explorer()" not in page
    page = convert(output("display_data", {"image/png": "iVBORw0KGgo="}), cell=5)
    assert "![00_explore_examples](../figures/00_explore_examples.png)" in page


# ---- Gallery -------------------------------------------------------------------------------------

# Figures with other parameters are not in the gallery
FIGURES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "figures").rglob("*.png")
    if not {"other", "custom"} & {*path.parts}
)


def test_gallery_has_every_figure_with_its_notebook_svg_numbers_and_caption(cells, pages):
    gallery = pages.gallery()
    assert cells.caption("figures/02_alpha_sweep") in gallery
    text = cells.with_captions("![x](../../figures/02_alpha_sweep.png)\n\nText.")
    assert text.split("\n\n")[1].startswith("AUROC of PRO against α")
    for figure in FIGURES:
        name = figure.with_suffix("").as_posix()
        picture = rf"\]\(\.\./{name}.png\){{ loading=lazy }}\]"
        notebook = rf"\(\.\./notebooks/{figure.name[:2]}_\w+\.ipynb\)"
        assert re.search(picture + notebook, gallery), name
        assert f"[SVG](../{name}.svg) · [numbers](../{name}.csv)" in gallery, name


# ---- The built site ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(pages, tmp_path_factory):
    """The folder of the built site; its notebooks are not executed."""
    folder = tmp_path_factory.mktemp("site")
    pages.make(folder / CONFIG["docs_dir"], None)
    pages.explorer(folder / CONFIG["docs_dir"] / "explorer.html", plain=True)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stdout + result.stderr
    return folder / CONFIG["site_dir"]


LOADING_TAG = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="([^"#?]*)[^"]*"')
EXTERNAL = re.compile(r"https?:|//")


def test_nothing_is_loaded_from_the_network(site):
    loaded = [
        (page.name, target)
        for page in site.rglob("*.html")
        for target in LOADING_TAG.findall(page.read_text())
        if EXTERNAL.match(target)
    ]
    assert loaded == []
    pattern = re.compile(r"(?:@import|url\()\s*['\"]?(?:https?:)?//")
    assert [style.name for style in site.rglob("*.css") if pattern.search(style.read_text())] == []


def test_pages_at_old_urls_lead_to_the_new_urls_and_their_headings(site):
    for old, new in read_redirects().items():
        new_page, _, new_anchor = new.partition("#")
        assert not new_anchor or f'id="{new_anchor}"' in (site / new_page).read_text(), new
        page, _, anchor = old.partition("#")
        place = posixpath.relpath(new, posixpath.dirname(page) or ".")
        link = f'"{anchor}": "{place}"' if anchor else f"url={place}"
        assert link in (site / page).read_text(), old


# ---- The site in a browser -----------------------------------------------------------------------


@pytest.fixture
def served(site):
    """The address of a server of the site."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


VISITED = ("index", "explanation/pro", "gallery", "notebooks/00_explore_examples", "api/scoring")
CLIPPED_FORMULAS = """
[...document.querySelectorAll('div.formula')]
.filter(box => box.scrollHeight > box.clientHeight).length
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1370, 400])
def test_pages_and_formulas_fit_the_window_and_load_nothing_from_the_network(served, browse, width):
    with browse(f"{served}/index.html", width=width) as (page, errors):
        urls = []
        page.on("request", lambda request: urls.append(request.url))
        for name in VISITED:
            page.goto(f"{served}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(CLIPPED_FORMULAS) == 0, name
        assert [url for url in urls if not url.startswith((served, "data:"))] == []
        assert errors == []


# ---- The API pages -------------------------------------------------------------------------------


def test_api_pages_have_every_public_function_and_class(site):
    missing = []
    for path in MODULES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        page = (site / "api" / f"{module.split('.')[1]}.html").read_text()
        nodes = ast.parse(path.read_text()).body
        names = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        ids = [f"{module}.{name}" for name in names if not name.startswith("_")]
        missing += [each for each in ids if f'id="{each}"' not in page]
    assert missing == []
