"""Response formats: a parser for every API, server or library whose answers can be read."""

from pro_lib.importing.formats.parsed import ParsedAnswer, ResponseFormat

__all__ = ["ParsedAnswer", "ResponseFormat"]
