"""The explorer in a real browser: JupyterLab runs the notebook, the slider moves, a question is asked.

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
from pathlib import Path

import nbformat
import pytest

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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


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
def jupyter_lab(folder):
    """The address of a JupyterLab of its own that serves `folder`, with nothing of the user's configuration."""
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
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={work}", "--ServerApp.port_retries=0"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log, cwd=work)
        try:
            wait_for_server(f"http://127.0.0.1:{port}/api", server, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            # It asks its kernels to end, too.
            server.terminate()
            server.wait(timeout=60)


def wait_for_server(url, server, log):
    """Until it answers: it says nothing else that could be waited for."""
    until = time.monotonic() + PATIENCE / 1000
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@contextmanager
def browser_page(address, *, width=1200, height=1000):
    """The notebook, open in the browser, and a list that collects the errors of its console."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(PATIENCE)
            errors = []
            page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(f"{error.name}: {error.message}"))
            page.goto(f"{address}/doc/tree/{NOTEBOOK.name}?token={TOKEN}")
            yield page, errors
        finally:
            browser.close()


def run_all(page):
    """Run the notebook and wait for the explorer's first picture and the figure below it."""
    # Before the kernel is there, running a cell asks which kernel to take.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".pro-app img.pro-picture").first.wait_for()
    page.locator(".jp-RenderedImage img").first.wait_for()


def picture(page, about):
    """The picture of that description, shown."""
    return page.locator(f".pro-app img.pro-picture[alt*='{about}']")


def press_on_slider(page, key):
    """Move α by a key; seconds until a picture for another α is there."""
    drawn_for = "document.querySelector(\"img[alt*='mean K at']\").alt.match(/α = ([0-9.]+)\\. /)[1]"
    before = page.evaluate(drawn_for)
    started = time.perf_counter()
    page.locator(".pro-app .noUi-handle").first.press(key)
    page.wait_for_function(f"before => {drawn_for} !== before", arg=before)
    return time.perf_counter() - started


def ask(page, question):
    """Type a question and press Enter."""
    page.get_by_role("tab", name="Ask").click()
    text = page.get_by_placeholder("type a question")
    text.fill(question)
    text.press("Enter")


def test_the_explorer_in_jupyterlab(tmp_path, record_property):
    with jupyter_lab(tmp_path) as address:
        folders = {"generations_dir": str(tmp_path / "generations"), "figures_dir": str(tmp_path / "figures")}
        notebook_with(tmp_path / "work", model="facts-1m", limit=1000, **folders)
        with browser_page(address) as (page, errors):
            run_all(page)
            explorer, head = page.locator(".pro-app"), page.locator(".pro-head").first
            shown = picture(page, "mean K at α = 0.4.")
            first, text = shown.get_attribute("src"), explorer.inner_text()

            # The slider: text and picture change.
            seconds = [press_on_slider(page, "ArrowLeft") for _ in range(5)]
            assert picture(page, "mean K at α = 0.35.").get_attribute("src") != first
            assert "line: α = 0.35" in explorer.inner_text()
            assert explorer.inner_text() != text
            record_property("slider_to_picture_seconds", sorted(seconds)[2])
            print(f"slider to picture: median {sorted(seconds)[2]:.3f} s of {len(seconds)}, 1,000 questions")

            # The list, by keyboard, and a filter.
            question = head.inner_text()
            explorer.locator("select[size]").first.focus()
            page.keyboard.press("ArrowDown")
            sync_api.expect(head).not_to_have_text(question)
            explorer.get_by_role("button", name="wrong").click()
            sync_api.expect(explorer).to_contain_text(re.compile(r"\b[1-9]\d\d of 1,?000 questions"))

            # A question of one's own, then one that is none.
            ask(page, "What is the capital of France?")
            picture(page, "prefixes searched").wait_for()
            sync_api.expect(explorer).to_contain_text("Searched down to α = 0.02")
            ask(page, " ")
            sync_api.expect(explorer.get_by_role("alert")).to_have_text("question is empty")

            page.get_by_role("tab", name="Compare").click()
            picture(page, "Ranks of the questions by PRO").wait_for()
            explorer.get_by_role("button", name="The paper's examples").click()
            sync_api.expect(head).to_have_text("sixth president of the United States")
            assert explorer.get_by_role("alert").count() == 0
            assert errors == []
    assert (tmp_path / "figures" / "00_explore_examples.png").is_file()


def take_pictures(folder, images):
    """The explorer as the docs show it, 1,200 pixels wide."""
    images.mkdir(parents=True, exist_ok=True)
    with jupyter_lab(folder) as address:
        folders = {"generations_dir": str(folder / "generations"), "figures_dir": str(folder / "figures")}
        notebook_with(folder / "work", limit=500, alpha=0.05, strategy="threshold", search_alpha=0.01, **folders)
        with browser_page(address, width=1370, height=1300) as (page, errors):
            run_all(page)
            explorer = page.locator(".pro-app")
            explorer.get_by_role("button", name="wrong").click()
            sync_api.expect(explorer).to_contain_text(re.compile(r"\d of 500 questions"))
            press_on_slider(page, "ArrowLeft")
            explorer.screenshot(path=images / "explorer.png")
            ask(page, "On a political map of Mali, which city is marked as the capital?")
            picture(page, "prefixes searched").wait_for()
            explorer.screenshot(path=images / "explorer_ask.png")
            page.get_by_role("tab", name="Compare").click()
            picture(page, "Ranks of the questions by PRO").wait_for()
            explorer.screenshot(path=images / "explorer_compare.png")
            print(errors)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        take_pictures(Path(name), ROOT / "docs" / "images")
