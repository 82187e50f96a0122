"""Merging and analysing by many processes, on any engine that follows ``concurrent.futures.Executor``.

The steps of a merge are tasks: the plan, then slices of time, then putting these together. A task is a function of this module with small
arguments, so that each engine can run it, on each machine that has the package and sees the files. What tasks share are files
in a directory next to the output, and they find these by name: the listing of a directory may lag on a parallel file system.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union

from . import _native, _programs

if TYPE_CHECKING:
    Path_ = Union[str, "os.PathLike[str]"]

T = TypeVar("T")

#: Gets the step (``plan``, ``slices``, ``join``; ``ranks``, ``tables``), and how many of its tasks are done, of how many.
Progress = Callable[[str, int, int], None]

#: Most slices of a merge: its borders are not known more finely.
_MOST_SLICES = 4096
#: Bytes of inputs for each slice, if the number of slices is not set.
_SLICE_BYTES = 64 << 20
#: How long a file that another process has written may take to appear here, seconds.
_PATIENCE_S = 60.0
#: Exit code of ``trace-cli`` when its input has losses.
_WITH_LOSSES = 3
#: Bytes at the beginning of a recording that contain its identity.
_IDENTITY_BYTES = 64


class UnfinishedError(RuntimeError):
    """Some tasks of a distributed call failed. The same call again does only what is missing.

    Attributes:
        parts: Names of these tasks, such as ``slice 3 of 8``.
        causes: The exception of each; the first is ``__cause__``, too.
    """

    def __init__(self, message: str, parts: Sequence[str] = (), causes: Sequence[BaseException] = ()) -> None:
        super().__init__(message)
        self.parts = list(parts)
        self.causes = list(causes)


@dataclass(frozen=True)
class Merged:
    """What ``merge`` wrote."""

    #: The trace.
    path: Path
    #: Its events.
    events: int
    #: Its length.
    bytes: int
    #: Slices that it was merged in.
    slices: int
    #: Whether nothing was lost and no rank is missing.
    is_complete: bool


@dataclass(frozen=True)
class Dataset:
    """What ``export`` wrote."""

    #: Its directory.
    path: Path
    #: Rows of each table.
    rows: dict[str, int]
    #: Number of its files.
    files: int
    #: Length of these files together, bytes.
    bytes: int


class _ThisProcess(Executor):
    """Runs each task immediately."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class _Work:
    """A merge by its files. Small: it is an argument of each task."""

    #: Directory of plan and slices.
    directory: str
    #: Names the inputs, the options and this version of the package.
    name: str
    #: Threads of a task; 0 means one for each processor.
    jobs: int

    @property
    def inputs(self) -> str:
        """File with the inputs' paths."""
        return os.path.join(self.directory, f"inputs-{self.name}.json")

    @property
    def plan(self) -> str:
        return os.path.join(self.directory, f"plan-{self.name}.json")

    @property
    def joined(self) -> str:
        """The trace, before it has its name: what a killed worker leaves of it is in the directory, too."""
        return os.path.join(self.directory, f"trace-{self.name}.annals")

    def slice(self, number: int, of: int) -> str:
        return os.path.join(self.directory, f"slice-{self.name}-{number}-of-{of}.annals")

    def read_inputs(self) -> list[str]:
        paths: list[str] = json.loads(_when_there(self.inputs, _read))
        return paths


@dataclass(frozen=True)
class _Part:
    """A part of an exported dataset: some tables of some ranks. Small: it is an argument of a task."""

    input: str
    #: Directory that the tables are written to. It is whole when there is the file of its result.
    directory: str
    tables: tuple[str, ...]
    #: First and last rank. ``None`` means all.
    ranks: tuple[int, int] | None
    #: Threads; 0 means one for each processor.
    jobs: int

    @property
    def result(self) -> str:
        """File with what was written. It is the last that is written."""
        return self.directory + ".json"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _when_there(path: str, read: Callable[[str], T]) -> T:
    """Reads a file by its name. One that another machine has just written is waited for, for a limited time."""
    until, pause = time.monotonic() + _PATIENCE_S, 0.01
    while True:
        try:
            return read(path)
        except FileNotFoundError as error:
            if time.monotonic() >= until:
                raise FileNotFoundError(f"{path} is missing, after {_PATIENCE_S:g} s of waiting for it") from error
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _write(path: str, contents: bytes) -> None:
    """Writes a file that has its name only when it is whole."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---- Tasks ----


def plan_merge(work: _Work, causality: str) -> None:
    """Writes the plan, unless it is there."""
    if not os.path.exists(work.plan):
        _native.write_plan(work.read_inputs(), work.plan, causality, work.jobs)


def merge_slice(work: _Work, number: int, of: int) -> None:
    """Writes a slice, unless it is there and whole."""
    path = work.slice(number, of)
    if os.path.exists(path) and _native.why_no_slice(path, number, of) is None:
        return
    inputs = work.read_inputs()
    _when_there(work.plan, os.stat)
    _native.write_slice(inputs, work.plan, path, number, of, work.jobs)


def join_slices(work: _Work, of: int) -> tuple[int, int, bool]:
    """Puts the slices together."""
    paths = [work.slice(number, of) for number in range(1, of + 1)]
    for path in paths:
        _when_there(path, os.stat)
    return _native.join_slices(paths, work.joined)


def count_regions(paths: list[str], number: int, of: int) -> bytes | None:
    """Returns the sums of regions of a group of recordings or ranks, if there is such a group."""
    return _native.region_sums(paths, number, of, 1)


def answer(paths: list[str], what: str) -> str:
    """Returns the answer of an analysis."""
    return _native.answer(paths, what, 1)


def list_ranks(path: str) -> list[int]:
    """Returns the ranks of an input, ascending."""
    info = json.loads(_trace_cli("info", path, "--json"))
    return sorted({process["rank"] for process in info["processes"]})


def export_part(part: _Part) -> dict[str, Any]:
    """Writes a part of a dataset, unless it is there. Returns rows by table, and the files below its directory with their lengths."""
    if not os.path.exists(part.result):
        shutil.rmtree(part.directory, ignore_errors=True)
        os.makedirs(part.directory)
        # Of one table, the output is the table's directory.
        single = len(part.tables) == 1
        to = os.path.join(part.directory, part.tables[0]) if single else os.path.join(part.directory, "tables")
        arguments = ["export", part.input, "-o", to, "--format", "parquet", "--partition", "rank", "--json", "--quiet"]
        arguments += ["--table", ",".join(part.tables)]
        if part.ranks is not None:
            arguments += ["--rank", f"{part.ranks[0]}-{part.ranks[1]}"]
        if part.jobs != 0:
            arguments += ["--jobs", str(part.jobs)]
        rows = json.loads(_trace_cli(*arguments))["rows"]
        at = part.directory if single else to
        files = [[os.path.relpath(file, at), os.path.getsize(file)] for file in _below(at)]
        _write(part.result, json.dumps({"at": at, "rows": rows, "files": files}).encode())
    found: dict[str, Any] = json.loads(_read(part.result))
    return found


def _trace_cli(*arguments: str) -> str:
    """Returns what ``trace-cli`` prints. Losses are no failure: the tables have them."""
    done = subprocess.run([_programs.executable(), *arguments], capture_output=True, text=True, errors="replace")
    if done.returncode not in (0, _WITH_LOSSES):
        lines = [line for line in done.stderr.splitlines() if line.startswith("trace-cli: ")]
        why = lines[-1].removeprefix("trace-cli: ") if lines else f"trace-cli ended with {done.returncode}"
        raise ValueError(why)
    return done.stdout


# ---- The calls ----


def merge(
    inputs: Path_ | Iterable[Path_],
    output: Path_,
    *,
    executor: Executor | None = None,
    slices: int | None = None,
    plan: Path_ | None = None,
    causality: str = "check",
    progress: Progress | None = None,
) -> Merged:
    """Merges recordings into one trace, by tasks of an executor.

    The trace has the events, the order, the hashes, totals and losses that ``trace-merge`` writes, with chunks that end
    elsewhere: it depends on the inputs and on ``slices``, not on the executor.

    Until it is done, its parts are in the directory ``<output>.parts``. If a task fails, the others are done nevertheless, and the
    parts stay: the same call again does only what is missing. Parts of other inputs are not used. The inputs are only read.

    Args:
        inputs: A recording, a directory of recordings, an OTF2 archive, a trace, or several of them.
        output: The trace that is written.
        executor: Runs the tasks: anything that follows ``concurrent.futures.Executor``. Each task takes one thread. Workers see
            inputs and output under the same paths. Default: this process, with a thread for each processor.
        slices: Number of slices of time, at most 4096; each is a task. Default: one for each 64 MiB of inputs, at least 4.
        plan: The plan that ``trace-merge --write-plan`` wrote for these inputs. Default: it is made.
        causality: Treatment of messages that are received before they are sent: ``off``, ``check`` or ``repair``. A plan
            has it already.
        progress: Called with the step, the number of its tasks that are done, and their number. Default: a bar on standard error,
            if that is a terminal.

    Raises:
        FileNotFoundError: An input does not exist.
        ValueError: Nothing in the inputs can be read, or an argument has no usable value.
        UnfinishedError: Tasks failed; it names them. Nothing is left under the name of the output then.
    """
    paths = _paths(inputs)
    to = os.path.abspath(os.fspath(output))
    if causality not in ("off", "check", "repair"):
        raise ValueError(f"causality is off, check or repair, not {causality!r}")
    if slices is not None and not 1 <= slices <= _MOST_SLICES:
        raise ValueError(f"slices is from 1 to {_MOST_SLICES}, not {slices}")
    found = [os.fspath(path) for path in _native.merge_inputs(paths, to)]
    planned = None if plan is None else _read(os.fspath(plan))
    name, size = _identity(found, causality if planned is None else planned)
    of = slices or min(max(-(-size // _SLICE_BYTES), 4), _MOST_SLICES)
    work = _Work(to + ".parts", name, 1 if executor else 0)
    os.makedirs(work.directory, exist_ok=True)
    _write(work.inputs, json.dumps(found).encode())
    if planned is not None:
        _write(work.plan, planned)
    run = _Run(executor or _ThisProcess(), progress or _bar(), found)
    run.all("plan", [("the plan", plan_merge, (work, causality))])
    tasks = [(f"slice {number} of {of}", merge_slice, (work, number, of)) for number in range(1, of + 1)]
    run.all("slices", tasks)
    [(events, length, is_complete)] = run.all("join", [("the join", join_slices, (work, of))])
    # Of a symbolic link the target is replaced.
    _when_there(work.joined, lambda path: os.replace(path, os.path.realpath(to)))
    _remove_parts(work.directory)
    return Merged(Path(to), events, length, of, is_complete)


def analyse(
    inputs: Path_ | Iterable[Path_],
    what: str,
    *,
    executor: Executor | None = None,
    groups: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Returns what ``trace-cli`` answers to a command with ``--json``, byte for byte.

    ``regions`` is counted by groups of recordings (of other inputs: of ranks), each in a task, and added up. The others follow
    messages and operations from rank to rank in the order of time, in one task: if the recordings are many, ``merge`` them first,
    and analyse the trace.

    Args:
        inputs: A trace, a recording, a directory of recordings, an OTF2 archive, or several of them.
        what: ``regions``, ``messages``, ``collectives`` or ``why``.
        executor: Runs the tasks: anything that follows ``concurrent.futures.Executor``. Each task takes one thread. Default: this
            process, with a thread for each processor.
        groups: Number of groups. Each asks all inputs for what ranks and clocks need. Default: the number of
            workers, if the executor says it, else of processors.
        progress: Called with the step, the number of its tasks that are done, and their number. Default: a bar on standard error,
            if that is a terminal.

    Raises:
        FileNotFoundError: An input does not exist.
        ValueError: Nothing in the inputs can be read, they have no events of this kind, or an argument has no usable value.
        UnfinishedError: Tasks failed; it names them.
    """
    paths = _paths(inputs)
    if what not in ("regions", "messages", "collectives", "why"):
        raise ValueError(f"what is regions, messages, collectives or why, not {what!r}")
    if groups is not None and (not isinstance(groups, int) or not 1 <= groups <= _MOST_SLICES):
        raise ValueError(f"groups is from 1 to {_MOST_SLICES}, not {groups!r}")
    if executor is None:
        return _native.answer(paths, what, 0)
    # All tasks read these files, whatever becomes of a directory meanwhile.
    paths = [os.fspath(path) for path in _native.list_inputs(paths)]
    of = min(groups or _workers_of(executor), _MOST_SLICES)
    run = _Run(executor, progress or _bar(), paths, keeps_results=False)
    try:
        if what != "regions" or of == 1:
            return run.all(what, [(what, answer, (paths, what))])[0]
        tasks = [(f"group {number + 1} of {of}", count_regions, (paths, number, of)) for number in range(of)]
        sums = [part for part in run.all(what, tasks) if part is not None]
    except UnfinishedError as error:
        # What is wrong with the inputs is wrong with each task.
        if isinstance(error.__cause__, (ValueError, FileNotFoundError)):
            raise error.__cause__ from None
        raise
    return _native.regions_of_sums(sums)


#: Tables of which each row is of one rank: each group of ranks is a task.
_BY_RANK = ("events", "calls", "regions", "metrics", "drops")
#: Tables of which a row is of several ranks: each table is a task.
_OF_ALL = ("messages", "collectives", "wait_states")
#: Describes a dataset. Engines leave out files whose names begin so.
_MANIFEST = "_manifest.json"


def export(
    input: Path_,
    output: Path_,
    *,
    executor: Executor | None = None,
    tables: Iterable[str] = ("events", "calls"),
    groups: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Writes tables as a dataset of Parquet files, partitioned by rank, by tasks of an executor.

    ``output/events/rank=0/part-0.parquet`` and so on: Spark, DuckDB, Polars and Dask take the rank from the name of the directory, and
    read only the ranks that a query asks for. The columns are those of ``trace-cli export``, and the same in all files of a table; ``call`` and
    ``parent`` of calls are numbers within their group of ranks. ``output/_manifest.json`` lists the tables with their rows, and the files with
    their lengths in bytes.

    Until it is done, its parts are in the directory ``<output>.parts``. If a task fails, the others are done nevertheless, and the
    parts stay: the same call again does only what is missing. The input is only read.

    Args:
        input: A trace, a recording, a directory of recordings, or an OTF2 archive. Of recordings, a task decodes only its ranks'.
        output: The directory that is written. One that ``export`` wrote earlier is replaced.
        executor: Runs the tasks, as of ``merge``. Default: this process, with a thread for each processor.
        tables: ``events``, ``calls``, ``regions``, ``metrics``, ``drops``, which are exported by groups of ranks; ``messages``,
            ``collectives``, ``wait_states``, each of which is one task.
        groups: Number of groups of ranks, at most one for each rank. Default: four for each worker.
        progress: Called with the step, the number of its tasks that are done, and their number. Default: a bar on standard error,
            if that is a terminal.

    Raises:
        FileNotFoundError: The input does not exist.
        FileExistsError: The output exists, and ``export`` did not write it.
        ValueError: Nothing in the input can be read, or an argument has no usable value.
        UnfinishedError: Tasks failed; it names them. Nothing is left under the name of the output then.
    """
    path, to = os.path.abspath(os.fspath(input)), os.path.abspath(os.fspath(output))
    asked = [tables] if isinstance(tables, str) else list(dict.fromkeys(tables))
    for table in asked:
        if table not in _BY_RANK + _OF_ALL:
            raise ValueError(f"tables are {', '.join(_BY_RANK + _OF_ALL)}, not {table!r}")
    if not asked:
        raise ValueError("tables: name at least one")
    if groups is not None and groups < 1:
        raise ValueError(f"groups is at least 1, not {groups}")
    if os.path.lexists(to) and not os.path.isfile(os.path.join(to, _MANIFEST)):
        raise FileExistsError(f"{to} exists, and is no dataset that export wrote: name another output")
    parts = to + ".parts"
    found = [os.fspath(file) for file in _native.merge_inputs([path], os.path.join(parts, "none"))]
    of = groups or 4 * (_workers_of(executor) if executor else 1)
    name, _ = _identity(found, repr((asked, of)))
    os.makedirs(parts, exist_ok=True)
    run = _Run(executor or _ThisProcess(), progress or _bar(), [path])
    try:
        [ranks] = run.all("ranks", [("the ranks", list_ranks, (path,))])
    except UnfinishedError as error:
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        raise
    of = max(min(of, len(ranks)), 1)
    by_rank = tuple(table for table in asked if table in _BY_RANK)
    jobs = 1 if executor else 0
    tasks: list[tuple[str, Callable[..., dict[str, Any]], tuple[Any, ...]]] = []
    for number in range(of if by_rank else 0):
        group = ranks[len(ranks) * number // of : len(ranks) * (number + 1) // of]
        at = os.path.join(parts, f"group-{name}-{number + 1}")
        tasks.append((f"group {number + 1} of {of}", export_part, (_Part(path, at, by_rank, (group[0], group[-1]), jobs),)))
    for table in asked:
        if table in _OF_ALL:
            at = os.path.join(parts, f"table-{name}-{table}")
            tasks.append((f"table {table}", export_part, (_Part(path, at, (table,), None, jobs),)))
    return _put_together(to, os.path.join(parts, f"dataset-{name}"), asked, run.all("tables", tasks))


def _put_together(to: str, staged: str, tables: list[str], parts: list[dict[str, Any]]) -> Dataset:
    """Moves the files of parts into one directory, which gets its name at last."""
    rows = dict.fromkeys(tables, 0)
    files: list[dict[str, Any]] = []
    for part in parts:
        for table, count in part["rows"].items():
            rows[table] += count
        for file, length in part["files"]:
            files.append({"path": file.replace(os.sep, "/"), "bytes": length})
            moved = os.path.join(staged, file)
            # A call that was interrupted here has moved some.
            if not os.path.exists(moved):
                os.makedirs(os.path.dirname(moved), exist_ok=True)
                _when_there(os.path.join(part["at"], file), lambda path, moved=moved: os.replace(path, moved))  # type: ignore[misc]
    os.makedirs(staged, exist_ok=True)
    files.sort(key=lambda file: str(file["path"]))
    by_table = {
        table: {"rows": rows[table], "files": [file for file in files if str(file["path"]).startswith(table + "/")]}
        for table in tables
    }
    manifest = {"format": "parquet", "partition": "rank", "annals_trace": _native.__version__, "tables": by_table}
    _write(os.path.join(staged, _MANIFEST), json.dumps(manifest, indent=1).encode())
    directory = os.path.dirname(staged)
    if os.path.lexists(to):
        os.replace(to, os.path.join(directory, f"replaced-{os.getpid()}"))
    os.replace(staged, to)
    _remove_parts(directory)
    return Dataset(Path(to), rows, len(files), sum(int(file["bytes"]) for file in files))


def _workers_of(executor: Executor) -> int:
    """Returns the number of workers as pools of Python, mpi4py and Dask have it, or else of processors."""
    for name in ("_max_workers", "num_workers"):
        workers = getattr(executor, name, None)
        if isinstance(workers, int) and workers > 0:
            return workers
    client = getattr(executor, "_client", None)
    workers = sum(client.nthreads().values()) if client is not None else os.cpu_count()
    return workers or 1


def _paths(inputs: Path_ | Iterable[Path_]) -> list[str]:
    """Returns absolute paths: the current directory of a worker may be another one."""
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    if not given:
        raise TypeError("inputs: a path, or several")
    return [os.path.abspath(os.fspath(path)) for path in given]


def _identity(inputs: Iterable[str], options: str | bytes) -> tuple[str, int]:
    """Returns the name of a merge, from its inputs' identities and lengths, and the sum of these lengths."""
    text = options.encode() if isinstance(options, str) else options
    digest, size = hashlib.sha256(repr((_native.__version__, text)).encode()), 0
    for path in inputs:
        # An archive is several files, with names that begin alike.
        stem = os.path.splitext(path)[0]
        files = [path, path + "-live", *_below(stem), stem + ".def"]
        for file in files:
            try:
                length = os.stat(file).st_size
                with open(file, "rb") as opened:
                    start = opened.read(_IDENTITY_BYTES)
            except OSError:
                # Such as one that is not there: merging reports what is missing.
                continue
            digest.update(repr((file, length, start)).encode())
            size += length
    return digest.hexdigest()[:32], size


def _below(directory: str) -> list[str]:
    return sorted(os.path.join(at, file) for at, _, files in os.walk(directory) for file in files)


class _Run:
    """Runs steps, and reports tasks that fail."""

    def __init__(
        self, executor: Executor, progress: Progress, inputs: Sequence[str], *, keeps_results: bool = True
    ) -> None:
        self._executor = executor
        self._progress = progress
        self._inputs = inputs
        self._keeps_results = keeps_results

    def all(self, step: str, tasks: Sequence[tuple[str, Callable[..., T], tuple[Any, ...]]]) -> list[T]:
        """Runs the tasks of a step: their names, functions and arguments. Returns their results, in order.

        Raises:
            UnfinishedError: Tasks failed. All others are done.
        """
        futures: dict[Future[T], int] = {}
        failed: dict[int, BaseException] = {}
        self._progress(step, 0, len(tasks))
        try:
            for number, (_, function, arguments) in enumerate(tasks):
                try:
                    futures[self._executor.submit(function, *arguments)] = number
                except Exception as error:
                    # Such as a pool that a killed worker has broken.
                    failed[number] = error
            results: dict[int, T] = {}
            for future in as_completed(futures):
                try:
                    results[futures[future]] = future.result()
                except Exception as error:
                    failed[futures[future]] = error
                self._progress(step, len(results), len(tasks))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        if failed:
            parts = [tasks[number][0] for number in sorted(failed)]
            causes = [failed[number] for number in sorted(failed)]
            raise UnfinishedError(self._message(parts, causes), parts, causes) from causes[0]
        return [results[number] for number in range(len(tasks))]

    def _message(self, parts: Sequence[str], causes: Sequence[BaseException]) -> str:
        first, more = self._inputs[0], len(self._inputs) - 1
        of = first if more == 0 else f"{first} and {more} more"
        # A cause that tasks share is reported once.
        by_cause: dict[str, list[str]] = {}
        for part, cause in zip(parts, causes):
            by_cause.setdefault(f"{type(cause).__name__}: {cause}", []).append(part)
        reasons = "; ".join(f"{', '.join(named)}: {cause}" for cause, named in by_cause.items())
        again = ". The same call again does only what is missing" if self._keeps_results else ""
        return f"{of}: not finished: {reasons}{again}"


def _bar() -> Progress:
    """Returns a progress callback that draws a bar, if standard error is a terminal."""
    if not sys.stderr.isatty():
        return lambda step, done, of: None

    def draw(step: str, done: int, of: int) -> None:
        width = 40 * done // of
        end = "\n" if done == of else ""
        print(f"\r{step:6} [{'#' * width:40}] {done}/{of}", end=end, file=sys.stderr, flush=True)

    return draw


def _remove_parts(directory: str) -> None:
    """Removes the parts of a merge or dataset that is done, and those that it left when its inputs were others."""
    for entry in os.listdir(directory):
        path = os.path.join(directory, entry)
        if entry.startswith(("inputs-", "plan-", "slice-", "trace-", "group-", "table-", "dataset-", "replaced-")):
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
                continue
            try:
                os.remove(path)
            except FileNotFoundError:
                pass
    try:
        os.rmdir(directory)
    except OSError:
        # Something else is in it.
        pass
