"""A run as files: parts whole or absent, plans, seals, one writer; knows no weights and no meaning of numbers."""

# ruff: noqa: F401 (what is imported here is what others may call)
from pro_lib.store.files import RunError, read_sealed, sha256, write_sealed, write_whole, writing
from pro_lib.store.folder import RunFolder, begin_part, difference, has_part, has_parts, named, read, write_part
from pro_lib.store.tables import CERTIFICATE_COLUMNS, Cost, Part, Plan, RunInfo, complete_log_prob, part_table, tables
