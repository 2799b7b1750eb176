"""The explorer: one run, question by question, drawn by the browser; knows runs as data, and no drawing in Python.

In a notebook it is a widget (`explore`), without one a file of its own (`to_html`); `explorer.js` draws both.
"""

from pro_lib.checks import extra
from pro_lib.explorer.data import appendix_run, comparison, prefix_tree, run_data, to_html

__all__ = ["appendix_run", "comparison", "explore", "prefix_tree", "run_data", "to_html"]


def explore(run, settings):
    """Return the widget that shows `run`, the runs in `settings.generations_dir`, and the paper's examples."""
    with extra("notebooks", "the explorer in a notebook"):
        from pro_lib.explorer.widget import Explorer

    return Explorer(run, settings)
