"""Traces of parallel programs: record, merge and analyse.

>>> import annals_trace
>>> trace = annals_trace.open("run.annals")
>>> trace.regions().to_pandas()

Times are integers in nanoseconds of trace time, which begins at 0; where a time is an argument, a text such as ``"1.5s"`` is
accepted, too.
"""

from __future__ import annotations

from ._distributed import Dataset, Merged, UnfinishedError, analyse, export, merge
from ._native import __version__
from ._programs import executable, include, library
from ._recording import EventType, Metric, Recorder, region, traced
from ._table import Table
from ._trace import Trace, open

__all__ = [
    "Dataset",
    "EventType",
    "Merged",
    "Metric",
    "Recorder",
    "Table",
    "Trace",
    "UnfinishedError",
    "__version__",
    "analyse",
    "executable",
    "export",
    "include",
    "library",
    "merge",
    "open",
    "region",
    "traced",
]
