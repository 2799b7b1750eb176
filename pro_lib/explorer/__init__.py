"""The explorer: one run, question by question, in a notebook (`explore`) or as a file (`to_html`); a browser draws."""

from pro_lib.checks import extra
from pro_lib.explorer.data import appendix_run, comparison, prefix_tree, run_data, to_html

__all__ = ["appendix_run", "comparison", "explore", "prefix_tree", "run_data", "to_html"]


def explore(run, settings):
    """Return the widget that shows `run`, the runs in `settings.generations_dir`, and the paper's examples."""
    with extra("notebooks", "the explorer in a notebook"):
        from pro_lib.explorer.widget import Explorer

    return Explorer(run, settings)
