"""The interactive page that shows the answers to single questions, as a file and as a widget."""

from pro_lib.app.explorer.data import appendix_run, comparison_data, run_data
from pro_lib.app.explorer.page import page_source, source_digest, to_html
from pro_lib.app.explorer.page_parts import read_javascript
from pro_lib.app.explorer.search_tree import prefix_tree

__all__ = [
    "appendix_run",
    "comparison_data",
    "page_source",
    "prefix_tree",
    "read_javascript",
    "run_data",
    "source_digest",
    "to_html",
]
