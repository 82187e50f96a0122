"""Tables of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import pandas

    from . import _native


class Table:
    """A table of a trace, which Polars, DuckDB, PyArrow, pandas and others read without a copy.

    It has no rows in memory. Each consumer reads the trace from the table's first row on, in another thread and without
    Python's lock; nothing is read before it asks for rows. It implements the `Arrow PyCapsule interface
    <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>`_: ``polars.DataFrame(table)``,
    ``duckdb.sql("select … from table")``, ``pyarrow.table(table)``. ``to_pandas()`` needs pandas alone.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return self._native.column_names

    @property
    def column_types(self) -> dict[str, str]:
        """Arrow's names of the columns' types, by name of the column."""
        return self._native.column_types

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns a new stream of all rows: a PyCapsule with the name ``arrow_array_stream``."""
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Returns the columns: a PyCapsule with the name ``arrow_schema``."""
        return self._native.__arrow_c_schema__()

    def count(self) -> int:
        """Counts the rows. It reads them."""
        return self._native.count()

    def to_numpy(self) -> dict[str, numpy.ndarray]:
        """Returns the columns as NumPy arrays, by name.

        Names are texts. Numbers of which rows are missing are floats with NaN, like those of pandas; a missing text is ``None``.

        Raises:
            ModuleNotFoundError: NumPy is not installed.
        """
        import numpy as np

        columns = {}
        for column in self._native._gather():
            texts = column["texts"] if column["texts"] is not None else column["bytes"]
            if texts is not None:
                columns[column["name"]] = np.array(texts, dtype=object)
                continue
            values = np.asarray(column["values"])
            if column["categories"] is not None:
                names = np.array([*column["categories"], None], dtype=object)
                values = names[values]
            elif column["missing"] is not None:
                values = np.where(np.asarray(column["missing"]), np.nan, values)
            columns[column["name"]] = values
        return columns

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a pandas DataFrame; PyArrow is not needed.

        Names are categories. Integers of which rows are missing have pandas' type ``Int64`` or ``UInt64``.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        import numpy as np
        import pandas as pd

        columns = {}
        for column in self._native._gather():
            texts = column["texts"] if column["texts"] is not None else column["bytes"]
            if texts is not None:
                columns[column["name"]] = pd.Series(texts, dtype=object)
                continue
            values = np.asarray(column["values"])
            if column["categories"] is not None:
                columns[column["name"]] = pd.Categorical.from_codes(values, column["categories"])
            elif column["missing"] is None or values.dtype.kind == "f":
                columns[column["name"]] = values
            else:
                missing = np.array(column["missing"], dtype=bool)
                make = pd.arrays.BooleanArray if values.dtype.kind == "b" else pd.arrays.IntegerArray
                columns[column["name"]] = make(values.copy(), missing)
        return pd.DataFrame(columns, copy=False)

    def __repr__(self) -> str:
        return repr(self._native)
