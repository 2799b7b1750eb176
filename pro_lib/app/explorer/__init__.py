"""The interactive page that shows the answers to single questions, as a file and as a widget."""

from pro_lib.app.explorer.page import (
    JAVASCRIPT,
    appendix_run,
    comparison_data,
    page_source,
    prefix_tree,
    run_data,
    source_digest,
    to_html,
)

__all__ = [
    "JAVASCRIPT",
    "appendix_run",
    "comparison_data",
    "page_source",
    "prefix_tree",
    "run_data",
    "source_digest",
    "to_html",
]
