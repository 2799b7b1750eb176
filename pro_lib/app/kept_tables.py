"""Tables of an experiment that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pandas as pd

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Method = Callable[Concatenate[Owner, Arguments], pd.DataFrame]


def kept_table(method: Method[Owner, Arguments]) -> Method[Owner, Arguments]:
    """Decorate a method that returns a table, so that each object computes the table once.

    Every call returns a copy of its own. So each cell of a notebook can ask for the table that it
    shows, and can be copied without the cells before it.
    """

    @wraps(method)
    def return_kept_table(
        owner: Owner, *args: Arguments.args, **options: Arguments.kwargs
    ) -> pd.DataFrame:
        tables: dict[Any, pd.DataFrame] = vars(owner).setdefault("_kept_tables", {})
        call = (method.__name__, args, tuple(sorted(options.items())))
        if call not in tables:
            tables[call] = method(owner, *args, **options)
        return tables[call].copy()

    return return_kept_table
