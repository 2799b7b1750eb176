"""The site: plain pages that another builder could take, built without a warning, that ask nothing of the network."""

import ast
import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading

import cells
import nbformat
import pages
import pytest
import yaml
from conftest import ROOT
from formulas import PageError, typeset
from test_browser import CHROMIUM, NOTEBOOK, browser_page, sync_api

MODULES = sorted((ROOT / "pro_lib").rglob("[a-z]*.py"))
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def test_a_formula_becomes_mathml_and_code_stays():
    found = typeset(
        "Of $p_K$ and `$p_K$`:\n\n```sh\necho $HOME $PATH\n```\n\ncosts $5, or 6 $ more\n"
    )
    assert "<msub><mi>p</mi><mi>K</mi></msub>" in found
    assert found.endswith("`$p_K$`:\n\n```sh\necho $HOME $PATH\n```\n\ncosts $5, or 6 $ more\n")
    found = typeset("$$\\frac{1}{2}, \\qquad K = 1$$")
    assert found.count('display="block"') == found.count("<math") == 2
    with pytest.raises(PageError, match="DoubleSubscriptsError: 'p_1_2'"):
        typeset("so $p_1_2$")


def executed(folder, *outputs, at=4, **changes):
    """An executed copy of a notebook, one of its code cells with these outputs, the first changed."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.execution_count = 1
    code[at].outputs = list(outputs)
    code[0].update(changes)
    nbformat.write(notebook, folder / NOTEBOOK.name)
    return folder / NOTEBOOK.name


def test_a_copy_is_taken_if_all_of_it_was_run_as_it_stands(tmp_path):
    assert cells.executed(NOTEBOOK, executed(tmp_path))
    assert not cells.executed(NOTEBOOK, tmp_path / "none.ipynb")
    error = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    for change in ({"source": "1 + 1"}, {"execution_count": None}, {"outputs": [error]}):
        assert not cells.executed(NOTEBOOK, executed(tmp_path, **change))


def test_of_an_executed_notebook_results_are_shown_and_nothing_of_this_machine(tmp_path):
    said = "/home/me/pro_lib/found.py:31: PremiseWarning: 1 of 3 has a mass above 1.\n  scores.pro(x)\n 40%|##| 2/5\n"
    table = "<div>\n<style scoped>\n .dataframe { }\n</style>\n"
    table += '<table border="1" class="dataframe">\n  <tr></tr></table></div>'
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Explorer()"}
    picture = {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}
    streams = [nbformat.v4.new_output("stream", name="stderr", text=said)]
    streams += [nbformat.v4.new_output("stream", name="stdout", text="9 questions\n")]
    shown = [{"text/html": table, "text/plain": "PLAIN"}, widget, picture]
    *others, drawn = [*streams, *(nbformat.v4.new_output("display_data", data) for data in shown)]
    page = cells.page(NOTEBOOK, executed(tmp_path, *others, drawn), tmp_path)
    for part in (
        "```text\nPremiseWarning: 1 of 3 has a mass above 1.\n```",
        "```text\n9 questions\n```",
    ):
        assert part in page
    assert '<div class="frame"><table><tr></tr></table></div>' in page
    assert 'src="../explorer.html"' in page
    assert not re.search(r"PLAIN|Explorer\(\)|<Figure>|/home|2/5|style scoped", page)
    assert f"]({next(tmp_path.glob('*.png')).name})" in page
    # A figure that is stored stands there as it is committed.
    page = cells.page(NOTEBOOK, executed(tmp_path, drawn, at=5), tmp_path)
    assert "![00_explore_examples](../figures/00_explore_examples.png)" in page
    place = nbformat.v4.new_output("stream", name="stdout", text="kept in /home/me/figures\n")
    with pytest.raises(PageError, match="'/home/me/figures'"):
        cells.page(NOTEBOOK, executed(tmp_path, place), tmp_path)


def test_the_gallery_has_every_figure_and_leads_to_its_notebook():
    page = pages.gallery()
    figures = (ROOT / "figures").rglob("*.png")
    own_folders = {"other", "custom"}  # figures with other parameters are not in the gallery
    for figure in (figure for figure in figures if not own_folders & {*figure.parts}):
        name = figure.relative_to(ROOT).with_suffix("").as_posix()
        notebook = re.search(
            rf"\]\(\.\./{name}\.png\){{ loading=lazy }}\]\(\.\./(notebooks/\S+\.ipynb)\)", page
        )
        assert (ROOT / notebook[1]).name[:2] == figure.name[:2]
        assert f"[SVG](../{name}.svg) · [numbers](../{name}.csv)" in page
    assert cells.what_to_see(ROOT / "notebooks" / "09_guarantees.ipynb")["09_sets"][1]


# ---- The site that is built of them ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, notebooks not executed, built where there is nothing but pages."""
    folder = tmp_path_factory.mktemp("site")
    pages.make(folder / CONFIG["docs_dir"], None)
    pages.explorer(folder / CONFIG["docs_dir"] / "explorer.html", plain=True)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    line = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return folder / CONFIG["site_dir"]


def test_every_page_is_in_the_navigation_links_lead_somewhere_and_nothing_is_asked_of_the_network(
    site,
):
    listed = set(re.findall(r"[\w/]+\.md", yaml.safe_dump(CONFIG["nav"])))
    assert listed >= {name.removeprefix("docs/") for name in pages.DOCS} | {
        *pages.NOTEBOOKS.values()
    }
    tag = re.compile(r'<(script|link|img|iframe|a)\b[^>]*?\b(?:src|href)="([^"#?]*)[^"]*"')
    for page in site.rglob("*.html"):
        for kind, target in tag.findall(page.read_text()):
            if re.match(r"https?:|//|data:|mailto:", target):
                assert kind == "a" or target.startswith("data:"), (page.name, target)
            elif target and not target.startswith(
                "/"
            ):  # the page for what was not found has paths of a server
                assert (page.parent / target).exists(), (page.name, target)
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", style.read_text()), (
            style.name
        )


@pytest.fixture
def served(site):
    """The address of a server of the site."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def in_a_browser(test):
    return pytest.mark.slow(
        pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")(test)
    )


@in_a_browser
@pytest.mark.parametrize("width", [1370, 400])
def test_in_a_browser_nothing_is_asked_of_the_network_and_all_fits(served, width):
    with browser_page(f"{served}/index.html", width=width) as (page, errors):
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for name in (
            "index",
            "concepts",
            "gallery",
            "notebooks/00_explore_examples",
            "api/scoring",
        ):
            page.goto(f"{served}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            clipped = "[...document.querySelectorAll('div.formula')].filter(box => box.scrollHeight > box.clientHeight)"
            assert page.evaluate(f"{clipped}.length") == 0, name
        assert [url for url in asked if not url.startswith((served, "data:"))] == []
        assert errors == []


@in_a_browser
def test_the_framed_explorer_is_whole_and_follows_the_switch_between_light_and_dark(site, served):
    with browser_page((site / "index.html").as_uri()) as (page, _):  # from a folder it draws, too
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        page.frame_locator("iframe.explorer").locator("figure svg").first.wait_for()
    with browser_page(f"{served}/index.html") as (page, errors):
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        frame = page.frame_locator("iframe.explorer")
        explorer = frame.locator(".pro-app")
        sync_api.expect(explorer).to_have_css("background-color", "rgb(255, 255, 255)")
        frame.locator("figure svg").last.wait_for()
        page.wait_for_function(
            "[...document.querySelectorAll('iframe.explorer')]"
            ".every(each => each.contentDocument.documentElement.scrollHeight <= each.clientHeight)"
        )
        page.get_by_title("dark").click()
        sync_api.expect(explorer).not_to_have_css("background-color", "rgb(255, 255, 255)")
        assert errors == []


# ---- The API pages --------------------------------------------------------------------------------------------------


def public(path):
    """Public functions, classes and methods of a module: dotted name, node."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            for part in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    yield f"{node.name}.{part.name}", part


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_whatever_is_public_is_in_the_api_reference_and_what_takes_arrays_says_their_shape(
    path, site
):
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    page = (site / "api" / f"{dotted.split('.')[1]}.html").read_text()
    module = ast.get_docstring(ast.parse(path.read_text()))
    for name, node in public(path):
        assert f'id="{dotted}.{name}"' in page, name
        arguments = ast.unparse(node.args) if isinstance(node, ast.FunctionDef) else ""
        if re.search(r": (ArrayLike|NDArray|Floats)\b(?! \| float)", arguments):
            assert re.search(r"\([a-zA-Z]( \+ 1)?[,)]|shape", ast.get_docstring(node) + module), (
                name
            )
