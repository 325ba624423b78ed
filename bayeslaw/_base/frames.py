"""Take tables of other dataframe libraries."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar, overload

import pandas as pd

from bayeslaw._base.errors import RunTableError


class ArrowTable(Protocol):
    """A table that streams Arrow data: of polars, pyarrow, DuckDB, ..."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule of the stream."""
        ...


Other = TypeVar("Other")
Table: TypeAlias = pd.DataFrame | ArrowTable


@overload
def as_frame(table: Table) -> pd.DataFrame: ...
@overload
def as_frame(table: Table | Other) -> pd.DataFrame | Other: ...
def as_frame(table: Any) -> Any:
    """Return a table of another library as a pandas DataFrame; anything else as it is."""
    is_ours = isinstance(table, pd.DataFrame | pd.Series)
    if is_ours or not hasattr(table, "__arrow_c_stream__"):
        return table
    import pyarrow

    try:
        return pyarrow.table(table).to_pandas()
    except (TypeError, ValueError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise RunTableError(
            f"{type(table).__name__} cannot be read as a table of runs ({reason}): give "
            "a table of named columns, or a pandas DataFrame"
        ) from None
