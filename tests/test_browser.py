"""The explorer in a real browser: in JupyterLab, where it runs the notebook, and as one file without a kernel.

Called by hand, `python tests/test_browser.py`, it writes the pictures of the docs to docs/images instead.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from test_explorer import CAPITAL, NASTY, ODD, many

from pro_lib import explorer, metrics

sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "notebooks" / "00_explore_examples.ipynb"
TOKEN = "only-for-this-test"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The network is closed, and a browser that looks for it makes the console noisy.
FLAGS = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--no-first-run", "--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
# Milliseconds; two cores may be busy with something else.
PATIENCE = 120_000
sync_api.expect.set_options(timeout=PATIENCE)
NOTEBOOK_SETTINGS = {"windowingMode": "none"}  # else an output exists only while it is in view

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def notebook_with(folder, **parameters):
    """A copy of the notebook in `folder`, the values of some parameters replaced."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in parameters.items():
        cell.source, n = re.subn(rf"(?m)^({name}: \w+) = [^#\n]*", rf"\1 = {json.dumps(value)}  ", cell.source)
        assert n == 1, name
    nbformat.write(notebook, folder / NOTEBOOK.name)


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@contextmanager
def jupyter(folder, *command):
    """The address of a server of its own, JupyterLab or what is named, without the user's settings, on `folder`."""
    config, work = folder / "config", folder / "work"
    settings = config / "lab" / "user-settings" / "@jupyterlab" / "notebook-extension"
    for made in (config / "labconfig", settings, work):
        made.mkdir(parents=True, exist_ok=True)
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps(NOTEBOOK_SETTINGS))
    # News of the Jupyter project would be fetched from the network, after a question in the way of the notebook.
    disabled = {"@jupyterlab/apputils-extension:announcements": True}
    (config / "labconfig" / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / "ipython"), "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(config / "lab" / "user-settings")}
    own |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    token = [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}", "--ServerApp.port_retries=0"]
    served = ["--ip=127.0.0.1", *token, *(["--allow-root"] if os.geteuid() == 0 else [])]
    command = [*command] if "voila" in command else [*(command or ["jupyterlab"]), *served]
    command = [sys.executable, "-m", *command, "--no-browser"]
    with open(folder / "server.log", "w") as log:
        for tries_left in (2, 1, 0):  # another process may take the port meanwhile
            port = free_port()
            line = [*command, f"--port={port}"]
            server = subprocess.Popen(line, env=os.environ | own, stdout=log, stderr=log, cwd=work)
            if answers(f"http://127.0.0.1:{port}/api", server):
                break
            server.kill()
            server.wait()
            assert tries_left, f"the server did not start:\n{(folder / 'server.log').read_text()[-2000:]}"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            # It asks its kernels to end, too.
            server.terminate()
            server.wait(timeout=60)


def answers(url, server):
    """Whether it does, in the end: it says nothing else that could be waited for."""
    until = time.monotonic() + PATIENCE / 1000
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return True
        except urllib.error.HTTPError as error:
            error.close()
            return True  # an answer, too
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    return False


@contextmanager
def browser_page(address, *, width=1200, height=1000, color_scheme="light"):
    """The page at that address, and a list that collects the errors of its console."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=color_scheme)
            page.set_default_timeout(PATIENCE)
            errors = []
            page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(f"{error.name}: {error.message}"))
            page.goto(address)
            yield page, errors
        finally:
            browser.close()


def notebook_page(address, **options):
    """The notebook, open in JupyterLab."""
    return browser_page(f"{address}/doc/tree/{NOTEBOOK.name}?token={TOKEN}", **options)


def run_all(page):
    """Run the notebook and wait for the explorer's charts and the figure below it."""
    # Before the kernel is there, running a cell asks which kernel to take.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".pro-app figure").first.wait_for()
    page.locator(".jp-RenderedImage img").first.wait_for()


def saved(path):
    """Wait until the notebook is stored with what its cells left."""
    until = time.monotonic() + PATIENCE / 1000
    while not all(kind in path.read_text() for kind in ("application/vnd.jupyter.widget-view+json", "image/png")):
        assert time.monotonic() < until
        time.sleep(0.1)


def ask(page, question):
    """Type a question and press Enter."""
    page.get_by_role("tab", name="Ask").click()
    text = page.get_by_placeholder("type a question")
    text.fill(question)
    text.press("Enter")


# Sixty steps of the slider, each from its event to after the frame it paints, in milliseconds; the first ten warm up.
MOVE = """async () => {
    const slider = document.querySelector(".pro-slider input"), times = [];
    for (let step = 0; step < 60; step++) {
        const started = performance.now();
        slider.value = Number(slider.value) + (step % 2 ? -7 : 8);
        slider.dispatchEvent(new Event("input"));
        const channel = new MessageChannel(); // what is sent before a frame is painted arrives after it
        await new Promise((painted) => {
            channel.port1.onmessage = painted;
            requestAnimationFrame(() => channel.port2.postMessage(0));
        });
        times.push(performance.now() - started);
    }
    const sorted = times.slice(10).sort((a, b) => a - b);
    return { steps: sorted.length, median: sorted[25], worst: sorted.at(-1) };
}"""


def slider_to_picture(page, record_property, where):
    """Record how long a step takes. On a quiet machine 50 ms hold; a second is what holds beside other work on it."""
    found = page.evaluate(MOVE)
    record_property(f"slider_to_picture_{where}_ms", found)
    print(
        f"slider to picture in {where}: median {found['median']:.0f} ms, worst {found['worst']:.0f} of {found['steps']}"
    )
    assert found["median"] < 1000


@pytest.mark.slow
def test_the_explorer_in_jupyterlab(tmp_path, record_property):
    with jupyter(tmp_path) as address:
        folders = {"generations_dir": str(tmp_path / "generations"), "figures_dir": str(tmp_path / "figures")}
        notebook_with(tmp_path / "work", model="facts-1m", limit=200, **folders)
        with notebook_page(address) as (page, errors):
            run_all(page)
            explorer, head = page.locator(".pro-app"), page.locator(".pro-head").first
            expect, slider = sync_api.expect, explorer.get_by_role("slider", name="α")

            promise = r"Promise by PRO at α = 0\.4, for questions like the \d+ of validation"
            expect(explorer).to_contain_text(re.compile(promise))

            # The slider, by keyboard: numbers and charts move, and JupyterLab does not take the key.
            for _ in range(5):
                slider.press("ArrowLeft")
            expect(
                explorer.get_by_role("img", name=re.compile(r"mean K against α.* α = 0\.35: mean K"))
            ).to_be_visible()
            expect(explorer.get_by_role("columnheader", name="line: α = 0.35")).to_be_visible()
            expect(slider).to_be_focused()

            slider_to_picture(page, record_property, "JupyterLab")
            for _ in range(30):  # back to where it stood
                slider.press("ArrowLeft")

            # The list, by keyboard, and a filter.
            question = head.inner_text()
            explorer.get_by_role("listbox", name="questions").focus()
            page.keyboard.press("ArrowDown")
            expect(head).not_to_have_text(question)
            explorer.get_by_label("answered").select_option("wrong")
            expect(explorer).to_contain_text(re.compile(r"\b[1-9]\d+ of 200 questions"))

            # A question of one's own, then one that is none: no old answer stays.
            ask(page, CAPITAL)
            expect(explorer).to_contain_text("The prefixes searched")
            expect(explorer).to_contain_text("none reaches α = 0.02 of the search, so the greedy answer stands alone")
            expect(explorer.locator(".pro-asked .pro-keys").last).to_contain_text("→ an answer that ended")
            ask(page, " ")
            expect(explorer.get_by_role("alert")).to_have_text("question is empty")
            expect(explorer).not_to_contain_text("The prefixes searched")

            page.get_by_role("tab", name="Compare").click()
            expect(explorer).to_contain_text("All 200 questions shown are compared.")
            worst = explorer.locator(".pro-link").first
            question = worst.inner_text()
            worst.press("Enter")
            expect(head).to_have_text(question)

            # After a reload it is there again, where the slider stood, and still talks to the kernel.
            page.get_by_role("menuitem", name="File", exact=True).click()
            page.get_by_role("menuitem", name="Save Notebook").first.click()
            saved(tmp_path / "work" / NOTEBOOK.name)
            page.reload()
            page.locator(".pro-app figure").first.wait_for()
            expect(explorer.locator(".pro-alpha")).to_have_text("0.35")
            explorer.get_by_role("button", name="The paper's examples").click()
            expect(head).to_have_text("sixth president of the United States")
            expect(explorer).to_contain_text("AUROC left out: 3 judged answers are too few")
            explorer.get_by_role("combobox", name="Run", exact=True).select_option("world-facts/facts-1m/diverse_beam")
            expect(explorer).to_contain_text("n = 200")
            assert explorer.get_by_role("alert").count() == 0
            assert errors == []
    assert (tmp_path / "figures" / "00_explore_examples.png").is_file()


def small(folder):
    """The notebook with few questions, in the folder that a server serves."""
    (folder / "work").mkdir()
    folders = {"generations_dir": str(folder / "generations"), "figures_dir": str(folder / "figures")}
    notebook_with(folder / "work", model="facts-1m", limit=50, **folders)


def alive(page):
    """The explorer is drawn and talks to its kernel; its slider has room."""
    page.locator(".pro-app figure").first.wait_for()
    page.get_by_role("button", name="The paper's examples").click()
    sync_api.expect(page.locator(".pro-head").first).to_have_text("sixth president of the United States")
    assert page.get_by_role("slider").bounding_box()["width"] >= 150


@pytest.mark.trial
def test_the_explorer_in_notebook_7(tmp_path):
    pytest.importorskip("notebook", reason="Notebook is not installed")
    small(tmp_path)
    with jupyter(tmp_path, "notebook") as address:
        address = f"{address}/notebooks/{NOTEBOOK.name}?token={TOKEN}"
        with browser_page(address, width=1024, height=768) as (page, _):  # it logs errors of its own settings
            page.locator(".jp-NotebookKernelStatus", has_text=re.compile("^$")).wait_for(state="attached")
            page.wait_for_timeout(5000)  # for its kernel, of which it does not say that it is there
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            alive(page)
            page.wait_for_timeout(3000)  # the last cells, before what they left is saved
            page.get_by_role("menuitem", name="File", exact=True).click()
            page.get_by_role("menuitem", name="Save Notebook").first.click()
            page.wait_for_timeout(2000)
            page.reload()
            alive(page)


@pytest.mark.trial
def test_the_explorer_in_voila_in_dark(tmp_path):
    pytest.importorskip("voila", reason="Voilà is not installed")
    small(tmp_path)
    with (
        jupyter(tmp_path, "voila", NOTEBOOK.name, "--theme=dark") as address,
        browser_page(address, width=1024, height=768) as (page, _),
    ):
        for _ in range(2):  # opened, and reloaded, which starts a kernel of its own
            alive(page)
            ground = page.evaluate("getComputedStyle(document.querySelector('.pro-app')).backgroundColor")
            assert brightness(ground) < 0.1
            page.reload()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """3,600 questions with 32 answers each, all found by a search."""
    run = many(n=3600)
    answers = pd.concat([run.answers] * 11, ignore_index=True).sort_values("question_id", kind="stable")
    answers = answers.assign(token_ids=[[at] for at in range(len(answers))], log_prob=answers["log_prob"] - np.log(11))
    certificate = {"status": "certified", "why": "", "search_alpha": 0.0001, "alpha_floor": 1.0, "tree_bound": 2.0}
    certificate |= {"upper_bound": None, "expanded_prefixes": 7, "found_mass": 0.5, "small_endings_mass": 0.2}
    certificate |= {"pruned_mass": 0.2, "length_cut_mass": 0.1, "budget_cut_mass": 0.0}
    run = replace(run, answers=answers.reset_index(drop=True), questions=run.questions.assign(**certificate))
    return explorer.to_html(run, tmp_path_factory.mktemp("page") / "run.html").as_uri()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "color_scheme"), [(1370, "light"), (1024, "dark"), (683, "light"), (400, "dark")])
def test_nothing_is_cut_at_any_width_in_light_and_dark(large, width, color_scheme):
    with browser_page(large, width=width, height=768, color_scheme=color_scheme) as (page, errors):
        app = page.locator(".pro-app")
        app.locator("figure").first.wait_for()
        for tab in ("Compare", "Ask", "Questions"):
            page.get_by_role("tab", name=tab).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, tab
        assert page.get_by_role("slider").bounding_box()["width"] >= 150
        # 33 answers scroll in their table, so that the charts are below it and not below the screen.
        assert app.locator(".pro-scroll").bounding_box()["height"] < 200
        if width >= 1024:
            assert app.locator("figure").first.bounding_box()["y"] < 700
        ground, text = page.evaluate(
            "(look => [look.backgroundColor, look.color])(getComputedStyle(document.querySelector('.pro-app')))"
        )
        assert (brightness(ground) > brightness(text)) == (color_scheme == "light")
        error = page.evaluate("""() => {
            const said = Object.assign(document.createElement("p"), { className: "pro-error" });
            document.querySelector(".pro-app").append(said);
            return getComputedStyle(said).color; }""")
        assert contrast(error, ground) > 4.5
        assert errors == []


def brightness(color):
    """Relative luminance of `rgb(…)`, as WCAG has it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other):
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_slider_moves_everything_in_one_file(large, record_property):
    with browser_page(large) as (page, errors):
        app, head = page.locator(".pro-app"), page.locator(".pro-head")
        app.locator("figure").first.wait_for()
        slider_to_picture(page, record_property, "one file")
        # A click on a point leads to its question.
        before, scores = head.inner_text(), app.locator("figure svg").nth(1)
        box = scores.bounding_box()
        scores.click(position={"x": box["width"] - 12, "y": box["height"] - 60})
        sync_api.expect(head).not_to_have_text(before)
        scores.hover(position={"x": 60, "y": 60})
        assert app.locator("figure figcaption").nth(1).inner_text() != ""
        page.get_by_role("tab", name="Ask").click()
        sync_api.expect(app).to_contain_text("Asking needs a model and a running kernel")
        page.get_by_role("tab", name="Compare").click()
        sync_api.expect(app).to_contain_text("All 3,600 questions shown are compared.")
        # An exact search finds nothing twice.
        sync_api.expect(app.get_by_label("count repeated answers")).to_have_count(0)
        assert errors == []


def test_the_page_says_what_pro_lib_finds(large, tmp_path):
    run = many(n=400)
    run = replace(run, answers=run.answers.assign(finished=run.answers["question_id"] != "q00"))
    data = explorer.run_data(run, target=0.05)  # which every question with an answer keeps
    right = np.array([question["correct"] for question in data["questions"]][1:], dtype=bool)
    pro, methods = run.scores(alpha=0.4)["pro"].to_numpy()[1:], explorer.compared(run)["scores"]

    def auroc(uncertainty):
        """AUROC and its interval, as they are written."""
        value, low, high = (each[0] for each in metrics.auroc_intervals(np.transpose([uncertainty]), right))
        return f"{value:.3f} (95 %: {low:.3f} to {high:.3f})"

    with browser_page(explorer.to_html(run, tmp_path / "run.html", target=0.05).as_uri()) as (page, errors):
        app, expect = page.locator(".pro-app"), sync_api.expect
        promise, slider = app.locator(".pro-promise"), app.get_by_role("slider", name="α")
        start = "Promise by PRO at α = 0.4"
        says = f", for questions like the 100 of validation: {data['promise']['says']}"
        expect(promise).to_have_text(f"{start}{says} Of the 400 shown it would answer 399.")
        expect(app.locator(".pro-summary")).to_contain_text(f"AUROC {auroc(pro)} · mean K ")
        expect(app).to_contain_text("n = 400, 33 % right of the 399 that can be judged")
        expect(app.locator(".pro-facts")).to_contain_text("at α = 0.4 it would not be answered")
        app.get_by_role("button", name="next").click()
        expect(app.locator(".pro-facts")).to_contain_text("at α = 0.4 it would be answered")
        below = [round(100 * np.mean(pro[right == kind] < pro[0])) for kind in (True, False)]
        standing = "more uncertain than {} % of the right and {} % of the wrong answers".format(*below)
        expect(app.locator(".pro-facts")).to_contain_text(standing)
        page.get_by_role("tab", name="Compare").click()
        lexical = auroc(methods["SE, lexical"])
        expect(app).to_contain_text(f"AUROC: PRO {auroc(pro)}; SE, lexical {lexical}. 399 of the 400 questions shown")
        page.get_by_role("tab", name="Questions").click()

        app.get_by_label("count repeated answers").check()
        page.get_by_role("tab", name="Compare").click()
        expect(app).to_contain_text("Comparing this needs a running kernel")
        page.get_by_role("tab", name="Questions").click()
        expect(promise).to_contain_text(f"{start}, each answer counted once{says}")
        slider.press("End")
        expect(promise).to_contain_text(f"{start}, not where the slider stands{says}")
        expect(app.locator(".pro-facts")).to_contain_text("none reaches α = 1, so the likeliest stands alone")
        app.get_by_label("Split").select_option("validation")
        expect(promise).to_contain_text("Of the 100 shown it would answer 99.")

        # A fresh sample agrees with the first answer in all its spellings, and may in whatever was not found.
        page.goto(large)
        p = np.exp(many(n=3600).log_probs()[0])
        limits = f"with probability {p[0]:.3f} to {p[0] + 1 - p.sum():.3f}"
        expect(app.locator(".pro-facts")).to_contain_text(f"a fresh sample is spelled the same {limits}")
        assert errors == []


# Elements that hold a text which turns the writing round, and what comes after it too.
TURNING = """() => [...document.querySelectorAll(".pro-app *")].filter((each) => each.childNodes.length === 1
    && each.textContent.includes("\\u202e") && each.firstChild.nodeType === 3
    && !/^(BDI|OPTION|FIGCAPTION)$/.test(each.tagName)).map((each) => each.outerHTML.slice(0, 80))"""


@pytest.mark.slow
def test_odd_runs_and_hostile_texts_are_shown_as_they_are(tmp_path):
    texts = {"question": NASTY, "references": [[NASTY]] * 3, "note": NASTY}
    nasty = replace(
        many(n=3), answers=many(n=3).answers.assign(text=NASTY), questions=many(n=3).questions.assign(**texts)
    )
    says = {
        "one question": "AUROC not defined: all 1 judged answers are right",
        "one class": "AUROC not defined: all 2 judged answers are right",
        "no question": "No question passes the filters.",
        "no references": "AUROC not defined: no answer can be judged",
        "no answer": "No answer ended before it was cut.",
        "no text": "This run has no texts",
        "nasty": NASTY,
    }
    runs = ODD | {"nasty": nasty}
    for name, run in runs.items():
        explorer.to_html(run, tmp_path / f"{name}.html")
    with browser_page("about:blank", width=700) as (page, errors):
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        for name in runs:
            page.goto((tmp_path / f"{name}.html").as_uri())
            app = page.locator(".pro-app")
            sync_api.expect(app).to_contain_text(says[name])
            assert page.evaluate(TURNING) == [], name
            page.evaluate(MOVE)
            page.get_by_role("tab", name="Compare").click()
            page.get_by_role("tab", name="Questions").click()
            app.get_by_label("order").select_option("most uncertain first")
            app.get_by_label("find").fill("no such thing")
            sync_api.expect(app).to_contain_text("No question passes the filters.")
            app.get_by_role("button", name="next").click()
            assert app.locator("img, script").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 700, name
            assert errors == [], name


def take_pictures(folder, images):
    """The explorer as the docs show it."""
    images.mkdir(parents=True, exist_ok=True)
    with jupyter(folder) as address:
        folders = {"generations_dir": str(folder / "generations"), "figures_dir": str(folder / "figures")}
        notebook_with(folder / "work", limit=500, alpha=0.05, strategy="threshold", search_alpha=0.01, **folders)
        with notebook_page(address, width=1370, height=1300) as (page, errors):
            run_all(page)
            explorer = page.locator(".pro-app")
            explorer.get_by_label("answered").select_option("wrong")
            explorer.get_by_role("slider", name="α").press("ArrowLeft")
            explorer.screenshot(path=images / "explorer.png")
            ask(page, "On a political map of Mali, which city is marked as the capital?")
            sync_api.expect(explorer).to_contain_text("The prefixes searched")
            explorer.screenshot(path=images / "explorer_ask.png")
            page.get_by_role("tab", name="Compare").click()
            explorer.locator(".pro-link").first.wait_for()
            explorer.screenshot(path=images / "explorer_compare.png")
            print(errors)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        take_pictures(Path(name), Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
