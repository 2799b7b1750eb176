"""Import runs: records, and the responses of APIs, servers and other libraries."""

from pro_lib.importing.importers import (
    from_openai,
    from_records,
    from_vllm,
    import_answers,
    record_files,
)
from pro_lib.importing.records import read_labels, split_records

__all__ = [
    "from_openai",
    "from_records",
    "from_vllm",
    "import_answers",
    "read_labels",
    "record_files",
    "split_records",
]
