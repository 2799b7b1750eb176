"""What objects show of themselves at a prompt and in a notebook; knows no class."""

import html
from collections.abc import Callable
from typing import Any


def shown(said: Callable[[Any], str]) -> Callable[[type], type]:
    """Objects of the class show what is `said` of them, in a notebook with the first rows of their table below it."""

    def dressed(cls: type) -> type:
        def in_html(self: Any) -> str:
            table = self.table if hasattr(self, "table") else self.to_df()
            return f"<p>{html.escape(repr(self))}</p>{table.head().to_html(index=False)}"

        cls.__repr__, cls._repr_html_ = lambda self: f"{cls.__name__}({said(self)})", in_html
        return cls

    return dressed
