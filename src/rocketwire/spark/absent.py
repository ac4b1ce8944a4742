"""Stands in for the data source where it can't work, and says why when it is used."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSource


def missing() -> str:
    """What keeps the source from working here, and what to install; empty when nothing does."""
    import pyspark

    if _version(pyspark.__version__) < (4, 0):
        return f"the data source rocketmq needs pyspark 4.0 or later, this is {pyspark.__version__}"
    try:
        import numpy  # noqa: F401 - only whether it is there
        import pyarrow as pa
    except ImportError as error:
        return f'the data source rocketmq needs {error.name}: pip install "rocketwire[arrow]"'
    if _version(pa.__version__) < (18, 0):
        return (
            f"the data source rocketmq needs pyarrow 18 or later, this is {pa.__version__}: "
            'pip install "rocketwire[arrow]"'
        )
    return ""


def require() -> None:
    """Refuse to go on where the source can't work.

    Raises:
        ImportError: with what is missing.
    """
    if reason := missing():
        raise ImportError(reason)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def make_absent_source(error: BaseException) -> type[DataSource]:
    """A source under our name that explains itself, whatever is asked of it."""
    reason = missing() or (
        f"the data source rocketmq can't be loaded: {type(error).__name__}: {error}"
    )

    class AbsentDataSource(DataSource):
        """Says what is missing."""

        @classmethod
        def name(cls) -> str:
            """How users call it."""
            return "rocketmq"

        def schema(self) -> NoReturn:
            """Explain."""
            raise RuntimeError(reason)

        def reader(self, schema: Any) -> NoReturn:
            """Explain."""
            raise RuntimeError(reason)

        def writer(self, schema: Any, overwrite: bool) -> NoReturn:  # noqa: FBT001
            """Explain."""
            raise RuntimeError(reason)

        def streamReader(self, schema: Any) -> NoReturn:
            """Explain."""
            raise RuntimeError(reason)

        def streamWriter(self, schema: Any, overwrite: bool) -> NoReturn:  # noqa: FBT001
            """Explain."""
            raise RuntimeError(reason)

    return AbsentDataSource
