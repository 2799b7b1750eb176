"""The site: plain pages that another builder could take, built without a warning, that ask nothing of the network."""

import ast
import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import api
import cells
import nbformat
import pages
import pytest
import yaml
from formulas import PageError, typeset
from test_browser import CHROMIUM, browser_page, sync_api

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "pro_lib").rglob("[a-z]*.py"))
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
NOTEBOOK = ROOT / "notebooks" / "00_explore_examples.ipynb"


# ---- Pages ----------------------------------------------------------------------------------------------------------


def test_a_formula_becomes_mathml_and_code_stays():
    found = typeset("Of $p_K$ and `$p_K$`:\n\n```sh\necho $HOME $PATH\n```\n\ncosts $5, or 6 $ more\n")
    assert '<span class="formula"><math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">' in found
    assert "<msub><mi>p</mi><mi>K</mi></msub>" in found
    assert found.endswith("`$p_K$`:\n\n```sh\necho $HOME $PATH\n```\n\ncosts $5, or 6 $ more\n")


def test_displayed_formulas_may_stand_below_each_other_and_what_is_no_latex_is_said():
    found = typeset("$$\\frac{1}{2}, \\qquad K = 1$$")
    assert found.count('display="block"') == found.count("<math") == 2
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in found
    with pytest.raises(PageError, match="DoubleSubscriptsError: 'p_1_2'"):
        typeset("so $p_1_2$")


def executed(folder, *outputs, at=4, source=NOTEBOOK):
    """An executed copy of a notebook, one of its code cells with these outputs."""
    notebook = nbformat.read(source, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.execution_count = 1
    code[at].outputs = list(outputs)
    nbformat.write(notebook, folder / source.name)
    return folder / source.name


def test_a_copy_is_taken_if_all_of_it_was_run_as_it_stands(tmp_path):
    assert not cells.executed(NOTEBOOK, tmp_path / NOTEBOOK.name)
    copy = executed(tmp_path)
    assert cells.executed(NOTEBOOK, copy)
    changes = {
        "source": lambda cell: cell.update(source="1 + 1"),
        "not run": lambda cell: cell.update(execution_count=None),
        "failed": lambda cell: cell.outputs.append(nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])),
    }
    for change in changes.values():
        notebook = nbformat.read(copy, as_version=4)
        change(next(cell for cell in notebook.cells if cell.cell_type == "code"))
        nbformat.write(notebook, tmp_path / "changed.ipynb")
        assert not cells.executed(NOTEBOOK, tmp_path / "changed.ipynb")


def test_of_an_executed_notebook_results_are_shown_and_nothing_of_this_machine(tmp_path):
    said = (
        "/home/me/pro_lib/found.py:31: PremiseWarning: 1 of 3 has a mass above 1.\n  scores.pro(x)\n 40%|###  | 2/5\n"
    )
    table = "<div>\n<style scoped>\n    .dataframe { }\n</style>\n"
    table += '<table border="1" class="dataframe">\n  <tr></tr></table></div>'
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Explorer()"}
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text=said),
        nbformat.v4.new_output("stream", name="stderr", text=" 40%|###  | 2/5\n"),
        nbformat.v4.new_output("stream", name="stdout", text="9 questions\n"),
        nbformat.v4.new_output("display_data", {"text/html": table, "text/plain": "PLAIN"}),
        nbformat.v4.new_output("display_data", widget),
        nbformat.v4.new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}),
    ]
    page = cells.page(NOTEBOOK, executed(tmp_path, *outputs), tmp_path)
    assert "```text\nPremiseWarning: 1 of 3 has a mass above 1.\n```" in page
    assert "```text\n9 questions\n```" in page
    assert page.count('class="said"') == 2
    assert '<div class="frame"><table><tr></tr></table></div>' in page
    assert page.count('src="../explorer.html"') == 1
    assert not re.search(r"PLAIN|Explorer\(\)|<Figure>|/home|2/5|style scoped", page)
    [picture] = tmp_path.glob("*.png")
    assert f"]({picture.name})" in page
    place = nbformat.v4.new_output("stream", name="stdout", text="kept in /home/me/figures\n")
    with pytest.raises(PageError, match="'/home/me/figures'"):
        cells.page(NOTEBOOK, executed(tmp_path, place), tmp_path)


def test_a_stored_figure_stands_there_as_it_is_committed(tmp_path):
    picture = nbformat.v4.new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"})
    page = cells.page(NOTEBOOK, executed(tmp_path, picture, at=5), tmp_path)
    assert "ax.set(" in page.partition("![00_explore_examples](../figures/00_explore_examples.png)")[0][-300:]


def test_the_gallery_has_every_figure_and_leads_to_its_notebook():
    page = pages.gallery()
    for figure in sorted((ROOT / "figures").rglob("*.png")):
        name = figure.relative_to(ROOT).with_suffix("").as_posix()
        notebook = re.search(
            rf"\[!\[[^\]]*\]\(\.\./{name}\.png\){{ loading=lazy }}\]\(\.\./(notebooks/\S+\.ipynb)\)", page
        )
        assert (ROOT / notebook[1]).name[:2] == figure.name[:2]
        assert f"[SVG](../{name}.svg) · [numbers](../{name}.csv)" in page


def test_what_is_to_be_seen_is_said_by_the_notebook():
    said = cells.what_to_see(ROOT / "notebooks" / "09_guarantees.ipynb")
    assert said["09_sets"] == (
        "Sets that hold a right answer",
        "α has a meaning here: at the paper's 0.4 most sets are empty.",
    )


def test_a_long_signature_has_a_parameter_a_line():
    page = api.page("pro_lib/generate.py")
    assert re.search(r"```python\ngenerate\(\n    model: str \| Path \| Model,\n", page)
    assert "- `ValueError`: a setting out of its range" in page


# ---- The site that is built of them ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, notebooks not executed, built where there is nothing but pages; and what the builder said."""
    folder = tmp_path_factory.mktemp("site")
    pages.make(folder / CONFIG["docs_dir"], None)
    pages.explorer(folder / CONFIG["docs_dir"] / "explorer.html", plain=True)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    line = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / CONFIG["site_dir"], done.stdout + done.stderr


def test_the_site_builds_in_strict_mode_without_a_warning_with_every_page_in_the_navigation(site):
    folder, said = site
    assert CONFIG["strict"] is True
    assert "No issues found" in said
    assert (folder / "index.html").is_file()
    listed = set(re.findall(r"[\w/]+\.md", yaml.safe_dump(CONFIG["nav"])))
    assert listed >= {name.removeprefix("docs/") for name in pages.DOCS}
    assert listed >= {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def test_the_site_asks_nothing_of_the_network_and_links_only_to_what_it_has(site):
    folder, _ = site
    tag = re.compile(r'<(script|link|img|iframe|a)\b[^>]*?\b(?:src|href)="([^"#?]*)[^"]*"')
    for page in folder.rglob("*.html"):
        for kind, target in tag.findall(page.read_text()):
            if re.match(r"https?:|//|data:|mailto:", target):
                assert kind == "a" or target.startswith("data:"), (page.name, target)
            elif target and not target.startswith("/"):  # the page for what was not found has paths of a server
                assert (page.parent / target).exists(), (page.name, target)
    for style in folder.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", style.read_text()), style.name


@pytest.fixture
def served(site):
    """The address of a server of the site."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site[0])
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


IN_A_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.mark.slow
@IN_A_BROWSER
@pytest.mark.parametrize("width", [1370, 400])
def test_in_a_browser_nothing_is_asked_of_the_network_and_all_fits(served, width):
    with browser_page(f"{served}/index.html", width=width) as (page, errors):
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "concepts", "gallery", "notebooks/00_explore_examples", "api/scores"):
            page.goto(f"{served}/{name}.html")
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if name == "concepts":
                box = page.locator("math mfrac").first.bounding_box()
                assert box["height"] > box["width"] / 2 > 5, "a fraction is drawn as one"
        assert [url for url in asked if not url.startswith((served, "data:"))] == []
        assert errors == []


@pytest.mark.slow
@IN_A_BROWSER
def test_the_explorer_follows_the_switch_between_light_and_dark(served):
    with browser_page(f"{served}/index.html") as (page, errors):
        explorer = page.frame_locator("iframe.explorer").locator(".pro-app")
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        sync_api.expect(explorer).to_have_css("background-color", "rgb(255, 255, 255)")
        page.get_by_title("dark").click()
        sync_api.expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
        sync_api.expect(explorer).not_to_have_css("background-color", "rgb(255, 255, 255)")
        assert errors == []


@pytest.mark.slow
@IN_A_BROWSER
def test_the_explorer_draws_on_the_first_page_and_alone_from_a_folder_too(site):
    with browser_page((site[0] / "index.html").as_uri()) as (page, _):
        page.locator("iframe.explorer").scroll_into_view_if_needed()
        shown = page.frame_locator("iframe.explorer")
        sync_api.expect(shown.locator(".pro-head")).to_contain_text("president")
        shown.locator("figure svg").first.wait_for()
        page.get_by_role("link", name="Open the explorer alone").click()
        sync_api.expect(page.locator(".pro-head")).to_contain_text("president")


# ---- The API pages --------------------------------------------------------------------------------------------------


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def public(path):
    """Public functions, classes and methods of a module: dotted name, node."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            for part in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    yield f"{node.name}.{part.name}", part


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_whatever_is_public_is_in_the_api_reference(path, site):
    page = (site[0] / "api" / f"{dotted(path).split('.')[1]}.html").read_text()
    missing = [name for name, _ in public(path) if f'id="{dotted(path)}.{name}"' not in page]
    assert not missing


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_what_takes_arrays_says_their_shape(path):
    module = ast.get_docstring(ast.parse(path.read_text()))
    for name, node in public(path):
        assert ast.get_docstring(node), name
        arguments = ast.unparse(node.args) if isinstance(node, ast.FunctionDef) else ""
        if re.search(r": (ArrayLike|NDArray|Floats)\b(?! \| float)", arguments):
            assert re.search(r"\([a-zA-Z]( \+ 1)?[,)]|shape", ast.get_docstring(node) + module), name
