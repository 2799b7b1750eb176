"""Runs made of answers from elsewhere: records, and the responses of APIs, servers and other libraries."""

from pro_lib.importing.importers import from_file, from_openai, from_vllm, recorded
from pro_lib.importing.records import from_records, read_labels, split_records

__all__ = [
    "from_file",
    "from_openai",
    "from_records",
    "from_vllm",
    "read_labels",
    "recorded",
    "split_records",
]
