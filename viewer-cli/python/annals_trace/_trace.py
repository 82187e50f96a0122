"""An opened trace."""

from __future__ import annotations

import html
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from . import _native
from ._programs import executable
from ._table import Table

if TYPE_CHECKING:
    import numpy
    import pandas

#: A time of the trace: an int in nanoseconds, or a text such as ``"1.5s"`` or ``"250ms"``.
Time = Union[int, str]
#: Names: globs, separated by commas, or a sequence of them.
Names = Union[str, Iterable[str]]
#: Ranks: one, several, or a text such as ``"0,4-7"``.
Ranks = Union[int, str, Iterable[int]]
Path_ = Union[str, "os.PathLike[str]"]

#: Parts of a window, at most: each region has a number for each of them in memory.
_MOST_BINS = 100_000


def open(*paths: Path_ | Iterable[Path_]) -> Trace:
    """Opens a trace, a recording, a directory of recordings, an OTF2 archive, a Paraver or PyTorch trace, or several of them as one.

    Several paths may also be in a list, such as the files of all ranks of PyTorch.

    Recordings are merged while they are read. For many reads, merge them first: ``trace-merge``.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: Nothing in it can be read.
    """
    each: list[Path_] = []
    for path in paths:
        each.extend([path] if isinstance(path, (str, bytes, os.PathLike)) else path)
    if not each:
        raise TypeError("open() needs a path")
    return Trace(_native.open([os.fsdecode(path) for path in each]))


class Trace:
    """A trace. ``annals_trace.open`` opens one.

    Its tables have arguments in common:

    ``columns``
        Names of the columns that are wanted, in their order; only these are made. Default: all.
    ``start``, ``end``
        A window of trace time: ``start`` ≤ time < ``end``. Only the parts of the trace that overlap it are read.
    ``ranks``, ``locations``, ``regions``
        Only of these. A name that matches nothing raises ``ValueError``.

    A trace may be used by several threads at a time. It is closed by ``close()``, or as a context manager.
    """

    def __init__(self, native: _native.Trace) -> None:
        self._native = native

    # ---- Tables ----

    def _table(self, kind: str, columns: Iterable[str] | None, **arguments: Any) -> Table:
        if isinstance(columns, str):
            columns = [columns]
        wanted = None if columns is None else list(columns)
        return Table(self._native._table(kind, wanted, _arguments(**arguments)))

    def events(
        self,
        name: Names | None = None,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the events, in the order of their times; ``name``: of these event types.

        Columns: ``time_ns``, ``rank``, ``location``, ``source``, ``event``, and one for each element's name.
        """
        return self._table(
            "events", columns, events=name, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def calls(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the calls that overlap the window, by their ends; those that are open at the end are last.

        Columns: ``call`` (its number), ``parent`` (number of the call around it), ``rank``, ``location``, ``region``, ``begin_ns``,
        ``end_ns``, ``inclusive_ns`` and ``exclusive_ns`` (within the window), ``depth``, ``is_outermost`` (no recursion),
        ``is_uncertain`` (a loss lies in it), ``ended``, ``file``, ``line``, ``host``, ``thread_id``.
        """
        return self._table(
            "calls", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def regions(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns statistics of regions by location, like ``trace-cli regions --by location``.

        Columns: ``region``, ``rank``, ``location``, ``file``, ``line``, ``calls``, ``inclusive_ns``, ``exclusive_ns``, by how much these
        may be more (``inclusive_more_ns``, ``exclusive_more_ns``), ``min_ns``, ``mean_ns``,
        ``p50_ns``, ``p95_ns``, ``p99_ns``, ``max_ns``, ``open_calls`` (at the end), ``unmatched_leaves`` (without an enter),
        ``unleft_calls`` (without a leave). ``uncertain_calls``, ``uncertain_calls_is_lower_bound`` and ``time_is_uncertain`` say what
        losses may have changed.
        """
        return self._table(
            "regions", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def messages(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the messages of which both sides are known, with the receive in the window, by the times of the receives.

        Columns: ``send_ns``, ``receive_ns``, ``latency_ns``, ``from_rank``, ``from_location``, ``to_rank``, ``to_location``,
        ``communicator``, ``tag``, ``bytes``, ``late_sender_wait_ns`` and ``late_receiver_wait_ns`` (how long the receiver and the
        sender waited; missing where that is not known), ``is_uncertain`` (a loss before it may have changed it). After losses, only
        messages whose sides are proven to belong together.
        """
        return self._table(
            "messages", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def collectives(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the collective operations that all members have begun, the last one in the window.

        Columns: ``operation``, ``communicator``, ``members``, ``first_begin_ns``, ``last_begin_ns``, ``wait_ns`` (of all members,
        for the last one), ``last_rank``, ``is_uncertain`` (a loss before its last begin may have changed it).
        """
        return self._table(
            "collectives", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def metrics(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the values of metrics: ``time_ns``, ``rank``, ``location``, ``source``, ``metric``, ``unit``, ``value``."""
        return self._table(
            "metrics", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def samples(
        self,
        *,
        by: str = "function",
        within: Names | None = None,
        outside_mpi: bool = False,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
    ) -> Table:
        """Returns where threads spent processor time, by location, like ``trace-cli samples --by function,location``.

        ``by``: ``"function"``, ``"line"`` or ``"module"``. ``within``: only samples in calls of these regions, as enter and leave events
        have them. ``outside_mpi``: only samples outside of MPI.

        Columns: ``function`` (missing in rows of modules), ``rank``, ``location``, ``module``, ``file`` and ``line`` (of the code; with
        ``by="function"``, where the function begins), ``samples`` and ``self_ns`` (in it, but not in what it called), ``self_error_ns`` (one
        standard deviation), ``total_samples``, ``total_ns`` and ``total_error_ns`` (of samples with it anywhere on their call paths),
        ``is_uncertain`` (samples of the location are lost). Times are processor time.
        """
        if isinstance(columns, str):
            columns = [columns]
        wanted = None if columns is None else list(columns)
        arguments = _arguments(start=start, end=end, ranks=ranks, locations=locations, regions=within)
        return Table(self._native._table("samples", wanted, arguments, (by, outside_mpi)))

    def losses(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
    ) -> Table:
        """Returns what is missing, with its count, cause and interval.

        Columns: ``rank``, ``location``, ``source``, ``event`` (missing: of any type), ``count``, ``is_lower_bound``, ``kind``
        (``dropped``: no room; ``suppressed``: the user asked for less; ``skipped``: cannot be read), ``cause``, ``from_ns``,
        ``to_ns``.
        """
        return self._table("drops", columns, start=start, end=end, ranks=ranks, locations=locations)

    def locations(
        self,
        *,
        columns: Iterable[str] | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
    ) -> Table:
        """Returns the locations: usually threads.

        Columns: ``number``, ``rank``, ``location``, ``kind``, ``host``, ``process_id``, ``thread_id``, ``streams``, ``events``,
        ``lost``.
        """
        return self._table("locations", columns, ranks=ranks, locations=locations)

    def wait_states(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the single waits of calls for other ranks and threads, like those that ``trace-cli why`` adds up.

        Columns: ``pattern``, ``rank``, ``location``, ``region``, ``from_ns``, ``wait_ns``, ``uncertain_ns`` (by how much losses and
        errors of clocks may have changed it), ``for_rank`` and ``for_location`` (missing if not known), ``communicator``.
        """
        return self._table(
            "wait_states", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    def critical_path(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
    ) -> Table:
        """Returns what was done on the critical path, most first.

        Columns: ``region`` (missing: outside of all), ``path_ns``, ``share``, ``mean_ns`` (its time in the mean of all ranks),
        ``imbalance_ns`` (by how much the path is longer than that).
        """
        return self._table("critical_path", columns, start=start, end=end)

    def efficiency(
        self,
        *,
        columns: Iterable[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        ranks: Ranks | None = None,
        locations: Names | None = None,
        regions: Names | None = None,
    ) -> Table:
        """Returns the efficiencies of the run, from 0 to 1: a row for the multiplicative model of POP, one for the additive.

        Columns: ``model``, ``parallel``, ``load_balance``, ``communication``, ``serialisation``, ``transfer``.
        """
        return self._table(
            "efficiency", columns, start=start, end=end, ranks=ranks, locations=locations, regions=regions
        )

    # ---- Names that Pipit's users know ----

    def comm_matrix(self, output: str = "size", **arguments: Any) -> numpy.ndarray:
        """Returns what was sent between ranks: ``[sender, receiver]``, bytes (``output="size"``) or messages (``"count"``).

        Messages of which both sides are known count. Keyword arguments: ``start``, ``end``, ``ranks``, ``locations``.
        """
        import numpy as np

        _one_of("output", output, ("size", "count"))
        ranks = max(self._summary()["ranks"], default=-1) + 1
        matrix = np.zeros((ranks, ranks))
        for sender, receiver, count, sent, _ in self._native._message_pairs(_arguments(**arguments)):
            matrix[sender, receiver] = sent if output == "size" else count
        return matrix

    def comm_by_process(self, output: str = "size", **arguments: Any) -> pandas.DataFrame:
        """Returns what each rank sent and received: columns ``Sent`` and ``Received``, in bytes or messages."""
        import pandas as pd

        matrix = self.comm_matrix(output, **arguments)
        frame = pd.DataFrame({"Sent": matrix.sum(axis=1), "Received": matrix.sum(axis=0)})
        frame.index.name = "Process"
        return frame

    def message_histogram(self, bins: Any = 20, **arguments: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Returns how many messages have which size: counts, and the borders of the sizes in bytes, like ``numpy.histogram``."""
        import numpy as np

        sizes = self.messages(columns=["bytes"], **arguments).to_numpy()["bytes"]
        return np.histogram(sizes[~np.isnan(sizes.astype(float))], bins=bins)

    def comm_over_time(
        self, output: str = "size", message_type: str = "send", bins: Any = 50, **arguments: Any
    ) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Returns what was sent (``message_type="send"``) or received (``"receive"``) over time.

        The result is like that of ``numpy.histogram``: bytes or messages, and the borders of the times in nanoseconds.
        """
        import numpy as np

        _one_of("output", output, ("size", "count"))
        _one_of("message_type", message_type, ("send", "receive"))
        time = f"{message_type}_ns"
        messages = self.messages(columns=[time, "bytes"], **arguments).to_numpy()
        weights = np.nan_to_num(messages["bytes"].astype(float)) if output == "size" else None
        span = self._span(arguments)
        return np.histogram(messages[time], bins=bins, weights=weights, range=span)

    def flat_profile(
        self,
        metrics: str | list[str] = "time.exc",
        per_process: bool = False,
        **arguments: Any,
    ) -> pandas.DataFrame:
        """Returns the time of each region in nanoseconds: its mean over the ranks that call it, or by rank.

        ``metrics``: ``"time.exc"`` (without regions that it calls), ``"time.inc"`` (with them; recursion counts once), ``"count"``
        (calls), or several of them.
        """
        import pandas as pd

        columns = {"time.exc": "exclusive_ns", "time.inc": "inclusive_ns", "count": "calls"}
        metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        for metric in metrics:
            _one_of("metrics", metric, tuple(columns))
        wanted = [columns[metric] for metric in metrics]
        table = self.regions(columns=["region", "rank", *wanted], **arguments).to_numpy()
        frame = pd.DataFrame({"Name": table["region"], "Process": table["rank"]})
        for metric in metrics:
            frame[metric] = table[columns[metric]].astype(float)
        by_rank = frame.groupby(["Name", "Process"])[metrics].sum()
        if per_process:
            return by_rank
        return by_rank.groupby("Name").mean()

    def load_imbalance(
        self, metric: str = "time.exc", num_processes: int = 1, **arguments: Any
    ) -> pandas.DataFrame:
        """Returns the imbalance of each region: the maximum over the mean of the ranks that call it, and the ranks with most.

        Columns: ``<metric>.imbalance``, ``Top processes`` (at most ``num_processes``), ``<metric>.mean``; by mean, most first.
        """
        import pandas as pd

        by_rank = self.flat_profile(metric, per_process=True, **arguments)[metric]
        rows = {}
        for name, of_region in by_rank.groupby("Name"):
            values = of_region.droplevel("Name").sort_values(ascending=False, kind="stable")
            mean = values.mean()
            rows[name] = {
                f"{metric}.imbalance": values.iloc[0] / mean if mean else float("nan"),
                "Top processes": [int(rank) for rank in values.index[:num_processes]],
                f"{metric}.mean": mean,
            }
        columns = [f"{metric}.imbalance", "Top processes", f"{metric}.mean"]
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        return frame.sort_values(f"{metric}.mean", ascending=False, kind="stable")

    def idle_time(
        self, idle_functions: Iterable[str] = ("Idle",), mpi_events: bool = False, **arguments: Any
    ) -> pandas.DataFrame:
        """Returns the time of each rank in some regions, in nanoseconds: columns ``Process`` and ``Idle Time``.

        ``mpi_events``: MPI_Wait, MPI_Waitall and MPI_Recv count, too. What a rank waited for others is in ``wait_states()``.
        """
        import pandas as pd

        names = set(idle_functions)
        if mpi_events:
            names |= {"MPI_Wait", "MPI_Waitall", "MPI_Recv"}
        times = {rank: 0.0 for rank in self._summary()["ranks"]}
        table = self.regions(columns=["region", "rank", "inclusive_ns"], **arguments).to_numpy()
        for region, rank, time in zip(table["region"], table["rank"], table["inclusive_ns"]):
            if region in names:
                times[int(rank)] += float(time)
        return pd.DataFrame({"Process": list(times), "Idle Time": list(times.values())})

    def time_profile(
        self, num_bins: int = 50, normalized: bool = False, **arguments: Any
    ) -> pandas.DataFrame:
        """Returns the time of each region, without those that it calls, in equal parts of the window: a row for each part.

        Columns: ``bin_start`` and ``bin_end`` in nanoseconds, ``idle_time`` (in no region), and one for each region, in nanoseconds of
        all ranks together; ``normalized``: as a share of that time.
        """
        import numpy as np
        import pandas as pd

        if not 1 <= num_bins <= _MOST_BINS:
            raise ValueError(f"num_bins: from 1 to {_MOST_BINS}")
        edges_ns, regions = self._native._time_profile(num_bins, _arguments(**arguments))
        edges = np.array(edges_ns, dtype=float)
        frame = pd.DataFrame({name: np.array(times, dtype=float) for name, times in regions})
        whole = np.diff(edges) * max(1, len(self._summary()["ranks"]))
        frame.insert(0, "idle_time", np.maximum(whole - frame.sum(axis=1), 0.0))
        if normalized:
            frame = frame.div(whole, axis=0)
        frame.insert(0, "bin_start", edges[:-1])
        frame.insert(0, "bin_end", edges[1:])
        return frame

    # ---- Pictures and texts ----

    def timeline(self, start: Time | None = None, end: Time | None = None) -> Picture:
        """Returns a picture of the trace, or of a window of it, as a notebook shows it; ``str()`` of it is SVG."""
        return Picture(self._run("timeline", "--svg", start, end))

    def report(self, start: Time | None = None, end: Time | None = None) -> Report:
        """Returns a report of where the time of the run was spent, as an HTML page; ``save(path)`` writes it to a file."""
        return Report(self._run("report", "--output", start, end))

    def _run(self, command: str, option: str, start: Time | None, end: Time | None) -> str:
        self._summary()  # Raises if it is closed.
        if len(self._native.paths) != 1:
            raise ValueError("pictures and reports are of one input: merge the inputs first")
        with tempfile.TemporaryDirectory(prefix="annals-") as directory:
            output = Path(directory) / "output"
            arguments: list[str | os.PathLike[str]] = [executable(), command, self._native.paths[0]]
            arguments += [*_window_options(start, end), option, output]
            done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            # 3: finished, with loss; the picture shows it.
            if done.returncode not in (0, 3):
                raise RuntimeError(f"trace-cli {command} failed: {done.stderr.strip()}")
            return output.read_text(encoding="utf-8")

    # ---- The trace itself ----

    @property
    def paths(self) -> list[Path]:
        """The inputs."""
        return [Path(path) for path in self._native.paths]

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._native.closed

    def close(self) -> None:
        """Closes it. Reads that have begun continue; new ones raise ``ValueError``."""
        self._native.close()

    def __enter__(self) -> Trace:
        self._summary()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def summary(self) -> dict[str, Any]:
        """Returns what a trace has: ``events``, ``lost``, ``is_complete``, ``first_ns``, ``last_ns``, ``ranks``, ``hosts``,
        ``locations``, ``regions``, ``event_types``.

        ``lost`` counts what was dropped, skipped or truncated. ``is_complete`` is false if something was skipped or truncated, or a rank
        is missing. Recordings are read for it.
        """
        return dict(self._summary())

    def _summary(self) -> dict[str, Any]:
        return self._native._summary()

    def _span(self, arguments: dict[str, Any]) -> tuple[int, int]:
        edges, _ = self._native._time_profile(1, _arguments(**{**arguments, "regions": None}))
        return edges[0], edges[-1]

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled and copied, it is opened again: the reads of a trace belong to one process.
        if self.closed:
            raise ValueError("the trace is closed: open it again")
        return open, tuple(self._native.paths)

    def __repr__(self) -> str:
        paths = ", ".join(str(path) for path in self._native.paths)
        return f"<annals_trace.Trace {paths}{' (closed)' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        if self.closed:
            return html.escape(repr(self))
        summary = self._summary()
        known = summary["first_ns"] is not None and summary["last_ns"] is not None
        rows = {
            "trace": ", ".join(str(path) for path in self._native.paths),
            "events": f"{summary['events']:,}",
            "lost": f"{summary['lost']:,}" + (": see losses()" if summary["lost"] else ""),
            "complete": "yes" if summary["is_complete"] else "no",
            "time": f"{(summary['last_ns'] - summary['first_ns']) / 1e9:,.6g} s" if known else "not known before it is read",
            "ranks": f"{len(summary['ranks']):,}",
            "hosts": ", ".join(summary["hosts"][:10]) + (", …" if len(summary["hosts"]) > 10 else ""),
            "locations": f"{summary['locations']:,}",
            "regions": f"{summary['regions']:,}",
        }
        cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(cells)}</table>"


class Picture:
    """A picture as SVG."""

    __slots__ = ("svg",)

    def __init__(self, svg: str) -> None:
        #: The picture's text.
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def save(self, path: Path_) -> None:
        """Writes it to a file."""
        Path(path).write_text(self.svg, encoding="utf-8")


class Report:
    """A report as an HTML page."""

    __slots__ = ("page",)

    def __init__(self, page: str) -> None:
        #: The page's text.
        self.page = page

    def _repr_html_(self) -> str:
        # In a separate frame, without rights: neither its style nor text in names reaches the notebook.
        page = html.escape(self.page, quote=True)
        return f'<iframe sandbox srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def __str__(self) -> str:
        return self.page

    def save(self, path: Path_) -> None:
        """Writes it to a file."""
        Path(path).write_text(self.page, encoding="utf-8")


def _arguments(
    start: Time | None = None,
    end: Time | None = None,
    ranks: Ranks | None = None,
    locations: Names | None = None,
    regions: Names | None = None,
    events: Names | None = None,
) -> dict[str, Any]:
    return {
        "start": start,
        "end": end,
        "ranks": ranks,
        "locations": locations,
        "regions": regions,
        "events": events,
    }


def _window_options(start: Time | None, end: Time | None) -> list[str]:
    options = []
    for name, value in (("--from", start), ("--to", end)):
        if value is not None:
            options.append(f"{name}={value}" if isinstance(value, str) else f"{name}={int(value)}ns")
    return options


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}: {value!r} is none of {', '.join(map(repr, known))}")


