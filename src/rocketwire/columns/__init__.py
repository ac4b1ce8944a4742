"""Tables to messages and messages to tables, on Arrow, without a Python object per row.

Needs the extra ``arrow`` (pyarrow and numpy). Names are imported when first used, so that
looking at the package costs nothing and its absence is explained where it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketwire.columns.fetch import DataLossError
    from rocketwire.columns.schema import READ_COLUMNS, READ_SCHEMA
    from rocketwire.columns.tables import TableSent, read_batches, read_table, send_table

_HOMES = {
    "DataLossError": "fetch",
    "READ_COLUMNS": "schema",
    "READ_SCHEMA": "schema",
    "TableSent": "tables",
    "read_batches": "tables",
    "read_table": "tables",
    "send_table": "tables",
}

__all__ = [
    "READ_COLUMNS",
    "READ_SCHEMA",
    "DataLossError",
    "TableSent",
    "read_batches",
    "read_table",
    "send_table",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        module = importlib.import_module(f"{__name__}.{home}")
    except ModuleNotFoundError as error:
        if error.name in {"numpy", "pyarrow"}:
            raise ModuleNotFoundError(
                f'rocketwire.columns needs {error.name}: pip install "rocketwire[arrow]"',
                name=error.name,
            ) from error
        raise
    return getattr(module, name)
