"""Import runs: records, and the responses of APIs, servers and other libraries."""

from pro_lib.importing.answer_files import import_answers, record_files
from pro_lib.importing.label_tables import read_labels
from pro_lib.importing.splits import split_records

__all__ = [
    "import_answers",
    "read_labels",
    "record_files",
    "split_records",
]
