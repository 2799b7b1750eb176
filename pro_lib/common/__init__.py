"""Validation of parameters, files, and the catalog of models and data, for all packages."""

from pro_lib.common.catalog import bundled_models, locate, paper, paper_models
from pro_lib.common.downloads import download
from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError

__all__ = [
    "RunError",
    "SentenceError",
    "bundled_models",
    "download",
    "locate",
    "paper",
    "paper_models",
]
