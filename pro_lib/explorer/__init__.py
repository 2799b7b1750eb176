"""The explorer: one run, question by question, drawn by the browser; knows runs as data, and no drawing in Python.

In a notebook it is a widget (`explore`), without one a file of its own (`to_html`); `explorer.js` draws both.
"""

from pro_lib.checks import extra
from pro_lib.explorer.data import appendix_run, compared, run_data, stored_runs
from pro_lib.explorer.page import to_html
from pro_lib.explorer.tree import prefix_tree
from pro_lib.runs import Run
from pro_lib.settings import Settings

__all__ = ["appendix_run", "compared", "explore", "prefix_tree", "run_data", "stored_runs", "to_html"]


def explore(run: Run, settings: Settings):
    """The widget that shows `run`, the other runs of `settings.generations_dir`, and the paper's examples.

    Choose a run, filter its questions, look at one; ask the model of the run; compare two methods. One α moves it all.
    """
    with extra("notebooks", "the explorer in a notebook"):
        from pro_lib.explorer.widget import Explorer

    return Explorer(run, settings)
