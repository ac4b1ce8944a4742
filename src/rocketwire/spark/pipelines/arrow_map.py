"""Spark's ``mapInArrow`` for those who have no pandas.

Spark refuses the call where pandas is missing, though nothing on the way uses it. We do not want
to bring pandas along for that, so the call is put together here as Spark does it itself; where
pandas is installed, Spark's own method is used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ArrowFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def map_in_arrow(frame: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Run a function over the record batches of each partition."""
    if importlib.util.find_spec("pandas") is not None:
        return frame.mapInArrow(function, schema)
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*(frame[name] for name in frame.columns))
    is_barrier, profile = False, None
    mapped = frame._jdf.mapInArrow(column._jc, is_barrier, profile)  # noqa: SLF001
    return Frame(mapped, frame.sparkSession)
