"""The explorer in a real browser: in JupyterLab with a kernel, and as one file without a kernel.

The command `python tests/app/test_browser.py` writes the pictures of the docs to docs/images.
"""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from test_explorer import CAPITAL, NASTY, ODD, many, nasty

from pro_lib import generation, importing, metrics
from pro_lib.app import explorer
from pro_lib.app.label_page import LabelServer
from pro_lib.labels import read_label_file
from pro_lib.labels.session import LabelSession
from pro_lib.questions.question_sets import load_questions

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the Python package playwright is not installed"
)

NOTEBOOK = ROOT / "notebooks" / "00_explore_examples.ipynb"
TOKEN = "only-for-this-test"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# The network is closed, and a browser that looks for it makes the console noisy.
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]
FLAGS += ["--no-first-run", "--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
# Milliseconds; two cores may be busy with something else.
PATIENCE = 120_000
expect = sync_api.expect
expect.set_options(timeout=PATIENCE)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


def notebook_with(folder, base, **parameters):
    """Write a copy of the notebook into `folder`, with parameters; it writes below `base`."""
    import papermill  # takes a second

    parameters |= {name: str(base / name) for name in ("generations_dir", "figures_dir")}
    copy = folder / NOTEBOOK.name
    papermill.execute_notebook(NOTEBOOK, copy, parameters, prepare_only=True, progress_bar=False)


@contextmanager
def jupyter(folder, theme="JupyterLab Light"):
    """Start JupyterLab without the user's settings; yield the address of the notebook."""
    config, work = folder / ".jupyter", folder / "work"
    settings = "lab/user-settings/@jupyterlab/{}.jupyterlab-settings"
    news = "@jupyterlab/apputils-extension:announcements"
    files = {
        # Else an output exists only while it is in view.
        settings.format("notebook-extension/tracker"): {"windowingMode": "none"},
        settings.format("apputils-extension/themes"): {"theme": theme},
        # JupyterLab would ask whether to fetch news from the network, in front of the notebook.
        "labconfig/page_config.json": {"disabledExtensions": {news: True}},
    }
    work.mkdir()
    for name, content in files.items():
        (config / name).parent.mkdir(parents=True)
        (config / name).write_text(json.dumps(content))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}"]
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(
            command, env=os.environ | {"HOME": str(folder)}, stdout=log, stderr=log, cwd=work
        )
        try:
            end = time.monotonic() + PATIENCE / 1000
            while " is running at:" not in (said := (folder / "server.log").read_text()):
                assert server.poll() is None, said[-2000:]
                assert time.monotonic() < end
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/doc/tree/{NOTEBOOK.name}?token={TOKEN}"
        finally:
            # It asks its kernels to end, too.
            server.terminate()
            server.wait(timeout=60)


@contextmanager
def chromium():
    """A browser, which takes a second to start."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser, address, *, width=1200, height=1000):
    """The page at that address, and a list that collects the errors of its console.

    The page shares nothing with the browser's other pages.
    """
    page = browser.new_page(viewport={"width": width, "height": height})
    try:
        page.set_default_timeout(PATIENCE)
        errors = []
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(f"{error.name}: {error.message}"))
        page.goto(address)
        yield page, errors
    finally:
        page.close()


@contextmanager
def browser_page(address, *, width=1200, height=1000):
    """The page at that address in a browser of its own, and the errors of its console."""
    with chromium() as browser, page_of(browser, address, width=width, height=height) as opened:
        yield opened


def run_all(page):
    """Run the notebook and wait for the explorer's charts and the figure below it."""
    # Before the kernel is there, running a cell asks which kernel to take.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".pro-app figure").first.wait_for()
    page.locator(".jp-RenderedImage img").first.wait_for()


def ask(page, question):
    """Type a question and press Enter."""
    page.get_by_role("tab", name="Ask").click()
    page.get_by_placeholder("type a question").fill(question)
    page.get_by_placeholder("type a question").press("Enter")


def choose_run(page, name):
    page.get_by_role("combobox", name="Run", exact=True).select_option(name)


@pytest.fixture(scope="class")
def lab(tmp_path_factory):
    """The page of a JupyterLab in which the notebook has run, the errors, and a folder."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyter(folder) as address:
        notebook_with(folder / "work", folder, model="facts-1m", limit=200)
        with browser_page(address) as (page, errors):
            run_all(page)
            yield page, errors, folder


@pytest.fixture(scope="class")
def page(lab):
    return lab[0]


@pytest.fixture(scope="class")
def app(page):
    return page.locator(".pro-app")


@pytest.mark.slow
class TestExplorerInJupyterLab:
    """The tests share one JupyterLab, which takes long to start; the last one ends its kernel."""

    def test_running_all_cells_leaves_the_explorer_in_view(self, page, app):
        notebook = page.locator(".jp-WindowedPanel-outer").bounding_box()
        shown = app.bounding_box()
        assert notebook["y"] <= shown["y"] <= notebook["y"] + 300

    def test_keys_move_the_slider_and_select_questions(self, page, app):
        slider = app.get_by_role("slider", name="α")
        for _ in range(2):
            slider.press("ArrowRight")
        chart = re.compile(r"mean K against α.* α = 0\.07: mean K")
        expect(app.get_by_role("img", name=chart)).to_be_visible()
        expect(app.get_by_role("columnheader", name="line: α = 0.07")).to_be_visible()
        expect(slider).to_be_focused()  # JupyterLab does not use the key
        head = page.locator(".pro-head").first
        question = head.inner_text()
        app.get_by_role("listbox", name="questions").focus()
        page.keyboard.press("ArrowDown")
        expect(head).not_to_have_text(question)
        app.get_by_label("answered").select_option("wrong")
        expect(app).to_contain_text(re.compile(r"\b[1-9]\d+ of 200 questions"))

    def test_a_typed_question_is_answered_and_an_empty_one_is_an_error(self, page, app):
        ask(page, CAPITAL)
        expect(app).to_contain_text("The searched prefixes")
        expect(app).to_contain_text("no answer has p ≥ 0.02, so only the greedy answer is used")
        legend = app.locator(".pro-asked .pro-keys").last
        expect(legend).to_contain_text("→ an answer that ended")
        facts = app.locator(".pro-asked .pro-facts")
        expect(facts).to_contain_text("It was taught 36 relations")
        ask(page, " ")
        expect(app.get_by_role("alert")).to_contain_text("question is empty")
        expect(app).not_to_contain_text("The searched prefixes")

    def test_a_compared_question_leads_to_its_answers(self, page, app):
        page.get_by_role("tab", name="Compare").click()
        expect(app).to_contain_text("All 200 questions shown are compared.")
        link = app.locator(".pro-link").first
        question = link.inner_text()
        link.press("Enter")
        expect(page.locator(".pro-head").first).to_have_text(question)

    def test_other_runs_can_be_chosen_and_keep_alpha_and_how_repeats_count(self, lab, page, app):
        choose_run(page, "the paper's appendix")
        head = page.locator(".pro-head").first
        expect(head).to_have_text("sixth president of the United States")
        expect(app.locator(".pro-shown")).to_contain_text("PRO = 0.404 nats")
        expect(app).to_contain_text("AUROC left out: 3 judged answers are too few")
        slider = app.get_by_role("slider", name="α")
        repeats = app.get_by_label("count repeated answers")
        expect(repeats).to_be_checked()
        slider.press("End")
        choose_run(page, "world-facts/facts-1m/diverse_beam")
        expect(app).to_contain_text("n = 200")
        expect(slider).to_have_attribute("aria-valuetext", "0.07")
        expect(repeats).not_to_be_checked()
        assert app.get_by_role("alert").count() == 0
        assert lab[1] == []

    def test_keys_label_answers_and_jupyterlab_does_not_use_them(self, lab, page):
        _, _, folder = lab
        cells = page.locator(".jp-Cell").count()
        page.get_by_role("tab", name="Label").click()
        for number, key in enumerate("rdd"):
            page.get_by_text(f"{number} of 110 labels given").wait_for()
            page.keyboard.press(key)
        page.get_by_text("3 of 110 labels given").wait_for()
        page.keyboard.press("u")
        page.get_by_text("2 of 110 labels given").wait_for()
        assert page.locator(".jp-Cell").count() == cells
        [path] = (folder / "generations_dir" / "labels").glob("*.jsonl")
        assert read_label_file(path)["correct"].tolist() == [True, None]
        page.get_by_role("tab", name="Questions").click()

    def test_a_kernel_that_was_restarted_or_shut_down_is_reported(self, lab, page, app):
        alert = app.get_by_role("alert")
        page.get_by_role("button", name="Restart the kernel", exact=True).click()
        page.get_by_role("button", name="Confirm Kernel Restart").click()
        expect(alert).to_contain_text("The kernel does not run")
        choose_run(page, "the paper's appendix")
        expect(alert).to_contain_text("The kernel does not run")
        run_all(page)
        expect(alert).to_have_count(0)
        page.get_by_role("tab", name="Label").click()
        page.get_by_text("2 of 110 labels given").wait_for()
        for item in ("Kernel", "Shut Down Kernel"):
            page.get_by_role("menuitem", name=item, exact=True).click()
        expect(alert).to_contain_text("The kernel does not run")
        assert (lab[2] / "figures_dir" / "00_explore_examples.png").is_file()


def overlap(first, second):
    """Return whether the glyphs of two texts overlap; a box has 1 or 2 pixels around its glyphs."""
    for start, size in (("x", "width"), ("y", "height")):
        end = min(box[start] + box[size] for box in (first, second))
        if end - max(first[start], second[start]) <= 3:
            return False
    return True


def check_number_labels(app):
    """Check that the ten numbers of the plot of ranks do not overlap."""
    labels = [label.bounding_box() for label in app.locator(".pro-number").all()]
    assert len(labels) == 10
    assert not any(itertools.starmap(overlap, itertools.combinations(labels, 2)))


def test_a_page_without_a_kernel_shows_the_numbers_of_the_package(tmp_path):
    run = many(n=400)
    run = replace(run, answers=run.answers.assign(finished=run.answers["question_id"] != "q00"))
    right = np.array(
        [question["correct"] for question in explorer.run_data(run)["questions"]][1:], dtype=bool
    )
    pro = run.scores(alpha=0.4)["pro"].to_numpy()[1:]
    auroc = "{:.3f} (95 %: {:.3f} to {:.3f})".format(
        *(column[0] for column in metrics.auroc_intervals(np.transpose([pro]), right))
    )
    with browser_page(explorer.to_html(run, tmp_path / "run.html").as_uri()) as (page, errors):
        app = page.locator(".pro-app")
        head = page.locator(".pro-head")
        expect(app.locator(".pro-summary")).to_contain_text(f"AUROC {auroc} · mean K ")
        expect(app).to_contain_text("n = 400, 33 % right of the 399 that can be judged")
        most_uncertain = run.questions["question"].iloc[1 + int(np.argmax(pro))]
        expect(head).to_have_text(most_uncertain)
        why = re.compile("✓ right: ROUGE-L 1 with “alpha”, above 0.3|✗ wrong: ROUGE-L 0 with every")
        expect(app.locator(".pro-facts")).to_contain_text(why)
        # A click on a point leads to its question.
        before = head.inner_text()
        chart = app.locator(".pro-charts").last.locator(".pro-chooses svg")
        box = chart.bounding_box()
        chart.click(position={"x": 60, "y": box["height"] - 60})
        expect(head).not_to_have_text(before)
        chart.hover(position={"x": 60, "y": 60})
        expect(app.locator(".pro-charts").last.locator("figcaption").first).not_to_have_text("")
        # The slider and the two curves that it moves stand on the first 700 pixels.
        curve = app.get_by_role("img", name=re.compile("mean K against α")).bounding_box()
        assert curve["y"] + curve["height"] <= 700
        app.get_by_role("slider", name="α").press("End")
        expect(app.locator(".pro-facts")).to_contain_text(
            "no answer has p ≥ 1, so only the most probable one is kept"
        )
        app.get_by_label("Split").select_option("validation")
        expect(app.locator(".pro-summary")).to_contain_text("n = 100")
        app.get_by_label("Split").select_option("all")

        page.get_by_role("tab", name="Ask").click()
        expect(app).to_contain_text("Asking needs a model and a running kernel")
        page.get_by_role("tab", name="Compare").click()
        expect(app).to_contain_text("399 of the 400")
        check_number_labels(app)
        app.get_by_label("count repeated answers").check()
        expect(app).to_contain_text("This comparison needs a running kernel")
        assert errors == []


SENTENCES = {
    "one question": "AUROC not defined: all 1 judged answers are right",
    "twelve questions": "12 questions are too few for curves of AUROC and mean K against α.",
    "no question": "No question passes the filters.",
    "no answer": "No usable answer: cut.",
    "no text": "This run has no texts",
    "nasty": NASTY,
    "forty answers": "10 less probable",
}
FORTY = [{"text": f"answer {n}", "log_prob": -4 - n / 9} for n in range(40)]
FORTY = importing.import_answers(
    [{"question_id": "q", "references": ["answer 1"], "answers": FORTY}]
)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1370, 400])
def test_odd_runs_and_hostile_texts_are_displayed_as_texts(width, tmp_path):
    runs = ODD | {"nasty": nasty(), "forty answers": FORTY, "twelve questions": many(n=12)}
    with chromium() as browser:
        for name, sentence in SENTENCES.items():
            path = explorer.to_html(runs[name], tmp_path / f"{name}.html")
            with page_of(browser, path.as_uri(), width=width) as (page, errors):
                page.on("dialog", lambda dialog, errors=errors: errors.append(dialog.message))
                app = page.locator(".pro-app")
                expect(app).to_contain_text(sentence)
                for tab in ("Compare", "Ask", "Questions"):
                    page.get_by_role("tab", name=tab).click()
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                app.get_by_label("order").select_option("most uncertain first")
                app.get_by_label("find").fill("no such thing")
                expect(app).to_contain_text("No question passes the filters.")
                assert app.locator("img, script").count() == 0
                assert errors == [], name


def take_picture(folder, path, theme):
    """The explorer as the docs show it, in a light or dark theme."""
    with jupyter(folder, theme) as address:
        notebook_with(
            folder / "work", folder, limit=500, alpha=0.05, strategy="threshold", search_alpha=0.01
        )
        with browser_page(address, width=1370, height=1300) as (page, _):
            run_all(page)
            explorer = page.locator(".pro-app")
            explorer.get_by_label("answered").select_option("wrong")
            explorer.get_by_label("order").select_option("as asked")
            explorer.get_by_role("listbox").press("Home")
            explorer.get_by_role("slider", name="α").press("ArrowLeft")
            explorer.screenshot(path=path)


def take_label_pictures(folder, images):
    """The page of `pro label` as the docs show it: during the labelling, and at its end."""
    model = generation.load_model("facts-2m", device="cpu")
    questions = load_questions("world-facts", split="test", limit=400)
    run = generation.generate(model, questions, strategy="diverse_beam", out=folder, progress=False)
    os.chdir(folder)
    session = LabelSession.open(run, "labels.jsonl", n_planned=100)
    answers = session.planned.evaluation.answers
    is_right = answers.set_index("question")["alias_match"] > 0
    with LabelServer(session) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state = session.reply("open")
        for number in (35, state["n_requests"]):
            while state["n_given"] < number:
                correct = bool(is_right[state["answer"]["question"]])
                state = session.reply("give", state["n_given"], correct)
            with browser_page(server.address, width=760, height=900) as (page, _):
                page.get_by_text(f"{number} of {state['n_requests']} labels given").wait_for()
                page.get_by_text("answers have a decided label").wait_for()
                name = "label" if state["answer"] else "label_end"
                page.locator(".pro-label").screenshot(path=images / f"{name}.png")
        server.shutdown()


if __name__ == "__main__":
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    for theme, suffix in (("JupyterLab Light", ""), ("JupyterLab Dark", "_dark")):
        with tempfile.TemporaryDirectory() as name:
            take_picture(Path(name), images / f"explorer{suffix}.png", theme)
    with tempfile.TemporaryDirectory() as name:
        take_label_pictures(Path(name), images)
