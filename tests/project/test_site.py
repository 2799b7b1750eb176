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
from test_browser import CHROMIUM, NOTEBOOK, browser_page, sync_api

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


PICTURE = {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}


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


def test_tables_widgets_and_pictures_are_shown(convert, tmp_path):
    table = "<div>\n<style scoped>\n .dataframe { }\n</style>\n"
    table += '<table border="1" class="dataframe">\n  <tr></tr></table></div>'
    page = convert(output("display_data", {"text/html": table, "text/plain": "PLAIN"}))
    assert '<div class="frame"><table><tr></tr></table></div>' in page
    assert not re.search("PLAIN|style scoped", page)
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Explorer()"}
    page = convert(output("display_data", widget))
    assert 'src="../explorer.html"' in page
    assert "Explorer()" not in page
    page = convert(output("display_data", PICTURE))
    [picture] = tmp_path.glob("*.png")
    assert f"]({picture.name})" in page
    assert "<Figure>" not in page
    page = convert(output("display_data", PICTURE), cell=5)  # a figure that is stored
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


def test_navigation_has_every_page(pages):
    listed = set(re.findall(r"[\w/]+\.md", yaml.safe_dump(CONFIG["nav"])))
    docs = {name.removeprefix("docs/") for name in pages.DOCS}
    assert docs | {*pages.NOTEBOOKS.values()} <= listed


TAG = re.compile(r'<(script|link|img|iframe|a)\b[^>]*?\b(?:src|href)="([^"#?]*)[^"]*"')
EXTERNAL = re.compile(r"https?:|//|mailto:")


def read_targets(site):
    """Return page, tag and target of every link, script, style and image of the site."""
    return [
        (page, tag, target)
        for page in site.rglob("*.html")
        for tag, target in TAG.findall(page.read_text())
        if target and not target.startswith("data:")
    ]


def test_links_lead_to_files_and_nothing_is_loaded_from_the_network(site):
    for page, tag, target in read_targets(site):
        if EXTERNAL.match(target):
            assert tag == "a", (page.name, target)
        elif not target.startswith("/"):  # of the error page, which is shown at any path
            assert (page.parent / target).exists(), (page.name, target)
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


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
VISITED = ("index", "explanation/pro", "gallery", "notebooks/00_explore_examples", "api/scoring")
CLIPPED_FORMULAS = """
[...document.querySelectorAll('div.formula')]
.filter(box => box.scrollHeight > box.clientHeight).length
"""
FRAMES_ARE_WHOLE = """
[...document.querySelectorAll('iframe.explorer')]
.every(frame => frame.contentDocument.documentElement.scrollHeight <= frame.clientHeight)
"""


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1370, 400])
def test_pages_and_formulas_fit_the_window_and_load_nothing_from_the_network(served, width):
    with browser_page(f"{served}/index.html", width=width) as (page, errors):
        urls = []
        page.on("request", lambda request: urls.append(request.url))
        for name in VISITED:
            page.goto(f"{served}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(CLIPPED_FORMULAS) == 0, name
        assert [url for url in urls if not url.startswith((served, "data:"))] == []
        assert errors == []


@pytest.mark.slow
@needs_browser
def test_framed_explorer_works_when_the_page_is_opened_as_a_file(site):
    with browser_page((site / "index.html").as_uri()) as (page, _):
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        page.frame_locator("iframe.explorer").locator("figure svg").first.wait_for()


@pytest.mark.slow
@needs_browser
def test_framed_explorer_is_shown_completely_and_follows_the_switch_to_dark_colors(served):
    with browser_page(f"{served}/index.html") as (page, errors):
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        frame = page.frame_locator("iframe.explorer")
        frame.locator("figure svg").last.wait_for()
        page.wait_for_function(FRAMES_ARE_WHOLE)
        explorer = frame.locator(".pro-app")
        sync_api.expect(explorer).to_have_css("background-color", "rgb(255, 255, 255)")
        page.get_by_title("dark").click()
        sync_api.expect(explorer).not_to_have_css("background-color", "rgb(255, 255, 255)")
        assert errors == []


# ---- The API pages -------------------------------------------------------------------------------


def public_objects(path):
    """Return the public functions, classes and methods of a module: dotted name and node."""
    objects = []
    for node in ast.parse(path.read_text()).body:
        if is_public(node):
            objects.append((node.name, node))
            members = node.body if isinstance(node, ast.ClassDef) else []
            objects += [
                (f"{node.name}.{member.name}", member)
                for member in members
                if isinstance(member, ast.FunctionDef) and is_public(member)
            ]
    return objects


def is_public(node):
    """Return whether a statement defines a function or class with a public name."""
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")


def test_api_pages_have_every_public_object(site):
    missing = []
    for path in MODULES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        page = (site / "api" / f"{module.split('.')[1]}.html").read_text()
        ids = [f"{module}.{name}" for name, _ in public_objects(path)]
        missing += [each for each in ids if f'id="{each}"' not in page]
    assert missing == []


ARRAY_ARGUMENT = re.compile(r": (ArrayLike|NDArray|Floats)\b(?! \| float)")
SHAPE = re.compile(r"\([a-zA-Z]( \+ 1)?[,)]|shape")


def test_functions_of_arrays_describe_the_shapes():
    missing = []
    for path in MODULES:
        module_text = ast.get_docstring(ast.parse(path.read_text()))
        missing += [
            f"{path.stem}.{name}"
            for name, node in public_objects(path)
            if isinstance(node, ast.FunctionDef)
            and ARRAY_ARGUMENT.search(ast.unparse(node.args))
            and not SHAPE.search(ast.get_docstring(node) + module_text)
        ]
    assert missing == []
