"""Merging and exporting by many processes: process pools, Dask, MPI; workers that are killed, damaged parts, full disks."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import MPIRUN, run_python, trace_cli

import annals_trace
from annals_trace import UnfinishedError, _distributed

SLICES = 8
#: Of each kind of worker, how many are killed. The whole number takes two minutes.
KILLS = 20 if os.environ.get("ANNALS_LONG") else 4

RECORD = """
import sys, annals_trace
with annals_trace.Recorder(sys.argv[1]) as recorder:
    inner, outer = recorder.region("inner"), recorder.region("outer")
    for _ in range(int(sys.argv[2])):
        with outer:
            with inner:
                pass
"""


def record(directory: Path, calls: int) -> None:
    done = run_python(RECORD, directory, calls)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of three recordings."""
    directory = tmp_path_factory.mktemp("distributed") / "run"
    for calls in (60_000, 60_000, 10_000):
        record(directory, calls)
    assert len(list(directory.glob("*.annals"))) == 3
    return directory


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The merge by one process."""
    output = tmp_path_factory.mktemp("whole") / "whole.annals"
    done = trace_cli("merge", run, "-o", output)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def joined(run: Path, whole: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes that a merge in slices has, whatever runs its tasks. It is proven equal to the merge by one process."""
    output = tmp_path_factory.mktemp("joined") / "run.annals"
    merged = annals_trace.merge(run, output, slices=SLICES)
    assert merged == annals_trace.Merged(output, 520_000, output.stat().st_size, SLICES, True)
    assert equal(output, whole)
    verified = trace_cli("verify", output, run)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "compared with 3 recordings; it holds" in verified.stdout
    return output.read_bytes()


def equal(a: Path, b: Path) -> bool:
    """Returns whether two traces have the same events in the same order, and the same regions, locations and totals."""
    import pyarrow

    with annals_trace.open(a) as a_trace, annals_trace.open(b) as b_trace:
        return a_trace.events().count() == b_trace.events().count() and all(
            pyarrow.table(getattr(a_trace, table)()).equals(pyarrow.table(getattr(b_trace, table)()))
            for table in ("events", "regions", "locations", "losses")
        )


def state(directory: Path) -> dict[str, tuple[str, int]]:
    """Returns digest and time of change of each file."""
    files = sorted(directory.iterdir())
    return {file.name: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns) for file in files}


def pool(workers: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["annals_trace"])
    return ProcessPoolExecutor(workers, mp_context=context)


def of_merge(output: Path) -> list[str]:
    """Returns what is left next to an output."""
    return sorted(file.name for file in output.parent.iterdir() if file.name.startswith(output.name))


# ---- Engines ----


@pytest.mark.parametrize("engine", [ThreadPoolExecutor, pool])
def test_pools_write_what_one_process_writes(
    engine: Callable[[int], Executor], run: Path, joined: bytes, tmp_path: Path
) -> None:
    steps: list[tuple[str, int, int]] = []
    before = state(run)
    with engine(2) as executor:
        annals_trace.merge(
            run, tmp_path / "run.annals", executor=executor, slices=SLICES, progress=lambda *step: steps.append(step)
        )
    assert (tmp_path / "run.annals").read_bytes() == joined
    assert of_merge(tmp_path / "run.annals") == ["run.annals"]
    assert state(run) == before
    assert steps == [
        ("plan", 0, 1), ("plan", 1, 1),
        *[("slices", done, SLICES) for done in range(SLICES + 1)],
        ("join", 0, 1), ("join", 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [2, 4])
def test_dask_writes_what_one_process_writes(workers: int, run: Path, joined: bytes, tmp_path: Path) -> None:
    with cluster(workers) as client:
        annals_trace.merge(run, tmp_path / "run.annals", executor=client.get_executor(), slices=SLICES)
    assert (tmp_path / "run.annals").read_bytes() == joined


def cluster(workers: int) -> Any:
    distributed = pytest.importorskip("distributed")
    local = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    client = distributed.Client(local)
    return _Closing(client, local)


class _Closing:
    def __init__(self, *things: Any) -> None:
        self._things = things

    def __enter__(self) -> Any:
        return self._things[0]

    def __exit__(self, *_: object) -> None:
        for thing in self._things:
            thing.close()


MPI = """
import sys
from mpi4py.futures import MPIPoolExecutor
import annals_trace
if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        print(annals_trace.merge(sys.argv[1], sys.argv[2], executor=executor, slices=int(sys.argv[3])))
"""


#: MPI libraries: name, command, environment.
LAUNCHERS = [
    ("mpich", [str(MPIRUN)], {}),
    (
        "openmpi",
        ["/usr/bin/mpirun.openmpi", "--oversubscribe"],
        {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPI4PY_MPIABI": "openmpi"},
    ),
]


@pytest.mark.parametrize(("name", "launcher", "settings"), LAUNCHERS, ids=[name for name, _, _ in LAUNCHERS])
def test_mpi_writes_what_one_process_writes(
    name: str, launcher: list[str], settings: dict[str, str], run: Path, joined: bytes, tmp_path: Path
) -> None:
    if not Path(launcher[0]).exists():
        pytest.skip(f"NOT TESTED: {launcher[0]} is absent")
    environment = {**os.environ, **settings}
    probe = subprocess.run([*launcher, "-n", "1", sys.executable, "-c", "from mpi4py import MPI"], env=environment)
    if probe.returncode != 0 and name == "openmpi":
        pytest.skip("NOT TESTED: mpi4py does not find Open MPI")
    script, output = tmp_path / "merge.py", tmp_path / "run.annals"
    script.write_text(MPI)
    command = [*launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures", script, run, output, str(SLICES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "slices=8, is_complete=True" in done.stdout
    assert output.read_bytes() == joined


# ---- Workers that are killed ----


def kill_after(seconds: float, workers: Callable[[], list[int]]) -> threading.Thread:
    """Kills one of the workers after some time."""

    def kill() -> None:
        time.sleep(seconds)
        found = workers()
        if found:
            try:
                os.kill(random.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                pass

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def attempts(failed: list[object]) -> Iterator[int]:
    """Yields a number for each worker that is to be killed, and more numbers until a call has failed for a killed worker."""
    number = 0
    while number < KILLS or (not failed and number < 100):
        yield number
        number += 1
    assert failed


def test_a_killed_worker_of_a_pool_costs_its_slices_only(run: Path, joined: bytes, tmp_path: Path) -> None:
    before = state(run)
    output = tmp_path / "run.annals"
    unfinished: list[object] = []
    for number in attempts(unfinished):
        output.unlink(missing_ok=True)
        executor = pool(2)
        executor.submit(os.getpid).result()
        processes = executor._processes
        killer = kill_after(random.uniform(0, 0.4), lambda: list(processes))
        try:
            annals_trace.merge(run, output, executor=executor, slices=SLICES)
        except UnfinishedError as error:
            unfinished.append(error)
            assert error.parts and len(error.parts) == len(error.causes)
            assert "The same call again does only what is missing" in str(error)
            assert error.parts[0] in str(error) and str(run) in str(error)
            assert not output.exists()
        killer.join()
        # Python's pool may wait forever for a worker that was killed in the moment of its end.
        executor.shutdown(wait=False)
        for process in list(processes.values()):
            process.kill()
        # Some calls finish what others have begun, some merges are begun anew.
        if not output.exists() and number % 2 == 0:
            annals_trace.merge(run, output, slices=SLICES)
        if output.exists():
            assert output.read_bytes() == joined
            assert of_merge(output) == ["run.annals"]
    annals_trace.merge(run, output, slices=SLICES)
    assert output.read_bytes() == joined
    assert state(run) == before


def test_dask_repeats_the_tasks_of_killed_workers(run: Path, joined: bytes, tmp_path: Path) -> None:
    output = tmp_path / "run.annals"
    for _ in range(KILLS):
        output.unlink(missing_ok=True)
        # A new one each time: Dask does not always replace a worker that is killed soon after its start.
        with cluster(2) as client:
            nannies = client.cluster.workers.values()
            killer = kill_after(random.uniform(0, 0.3), lambda: [nanny.pid for nanny in nannies if nanny.pid])
            annals_trace.merge(run, output, executor=client.get_executor(), slices=SLICES)
            killer.join()
        assert output.read_bytes() == joined
        assert of_merge(output) == ["run.annals"]


def test_after_a_killed_rank_the_next_call_finishes_the_merge(run: Path, joined: bytes, tmp_path: Path) -> None:
    script, output = tmp_path / "merge.py", tmp_path / "run.annals"
    script.write_text(MPI)
    command = [MPIRUN, "-n", "3", sys.executable, "-m", "mpi4py.futures", script, run, output, str(SLICES)]
    failed: list[object] = []
    for _ in attempts(failed):
        output.unlink(missing_ok=True)
        launched = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        killer = kill_after(random.uniform(0.2, 1.2), lambda: processes_of(launched.pid))
        if launched.wait(timeout=300) != 0:
            failed.append(launched)
        killer.join()
        assert not output.exists() or output.read_bytes() == joined
    output.unlink(missing_ok=True)
    annals_trace.merge(run, output, slices=SLICES)
    assert output.read_bytes() == joined
    assert of_merge(output) == ["run.annals"]


def processes_of(launcher: int) -> list[int]:
    """Returns the Python processes below a launcher."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, _, rest = Path("/proc", entry, "stat").read_text().partition("(")[2].rpartition(") ")
        except OSError:
            continue
        parents.setdefault(int(rest.split()[1]), []).append(int(entry))
        names[int(entry)] = name
    below, found = [launcher], []
    while below:
        children = parents.get(below.pop(), [])
        below += children
        found += [child for child in children if names[child].startswith("python")]
    return found


# ---- Parts ----


class Failing(Executor):
    """Runs tasks in this process, and fails those of some slices."""

    def __init__(self, numbers: set[int]) -> None:
        self._numbers = numbers

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if fn is _distributed.merge_slice and args[1] in self._numbers:
            future.set_exception(ConnectionError(f"worker {args[1]} is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_the_same_call_does_only_what_is_missing(run: Path, joined: bytes, tmp_path: Path) -> None:
    output, parts = tmp_path / "run.annals", tmp_path / "run.annals.parts"
    with pytest.raises(UnfinishedError) as caught:
        annals_trace.merge(run, output, executor=Failing({3, 5}), slices=SLICES)
    assert caught.value.parts == ["slice 3 of 8", "slice 5 of 8"]
    assert [str(cause) for cause in caught.value.causes] == ["worker 3 is gone", "worker 5 is gone"]
    assert caught.value.__cause__ is caught.value.causes[0]
    assert "slice 3 of 8: ConnectionError: worker 3 is gone" in str(caught.value)
    assert of_merge(output) == ["run.annals.parts"]
    before = state(parts)
    assert len([name for name in before if name.startswith("slice-")]) == 6
    with pytest.raises(UnfinishedError, match="slice 5 of 8"):
        annals_trace.merge(run, output, executor=Failing({5}), slices=SLICES)
    after = state(parts)
    kept = [name for name in before if not name.startswith("inputs-")]
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert len(after) == len(before) + 1
    # Damage of finished slices: in the middle, at the end, of the header.
    slices = sorted(parts.glob("slice-*"))
    for slice, damage in zip(slices, [flip(0.5), lambda file: file[:-100], flip(0.0), lambda file: b""]):
        slice.write_bytes(damage(slice.read_bytes()))
    annals_trace.merge(run, output, slices=SLICES)
    assert output.read_bytes() == joined
    assert of_merge(output) == ["run.annals"]


def flip(at: float) -> Callable[[bytes], bytes]:
    def damage(file: bytes) -> bytes:
        position = int(at * len(file))
        return file[:position] + bytes([file[position] ^ 0xFF]) + file[position + 1 :]

    return damage


def test_parts_and_plans_of_other_inputs_are_not_used(run: Path, joined: bytes, tmp_path: Path) -> None:
    copy, output, plan = tmp_path / "run", tmp_path / "run.annals", tmp_path / "plan.json"
    shutil.copytree(run, copy)
    options = ["--slice", "1/2", "--write-plan", plan]
    planned = trace_cli("merge", run, "-o", tmp_path / "slice.annals", *options)
    assert planned.returncode == 0, planned.stderr
    # The plan is of recordings, wherever they are.
    annals_trace.merge(copy, output, slices=SLICES, plan=plan)
    assert output.read_bytes() == joined
    with pytest.raises(UnfinishedError):
        annals_trace.merge(copy, output, executor=Failing({2}), slices=SLICES)
    record(copy, 100)
    merged = annals_trace.merge(copy, output, slices=SLICES)
    assert merged.events == 520_400
    assert of_merge(output) == ["run.annals"]
    with pytest.raises(UnfinishedError, match="is no plan for these inputs: recording .* was not there"):
        annals_trace.merge(copy, output, slices=SLICES, plan=plan)
    assert trace_cli("verify", output, copy).returncode == 0
    # A recording that is longer than it was.
    shutil.rmtree(copy)
    shutil.copytree(run, copy)
    with next(copy.glob("*.annals")).open("ab") as file:
        file.write(bytes(8))
    with pytest.raises(UnfinishedError, match="is no plan for these inputs: .* bytes, and had .* when it was made"):
        annals_trace.merge(copy, output, slices=SLICES, plan=plan)


class Lagging(Executor):
    """Runs tasks in this process. What they write is only there some time later."""

    def __init__(self, parts: Path, seconds: float) -> None:
        self._parts = parts
        self._seconds = seconds
        self._known: set[Path] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._known |= set(self._parts.iterdir())
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        for new in set(self._parts.iterdir()) - self._known:
            self._known.add(new)
            hidden = self._parts.parent / new.name
            new.rename(hidden)
            timer = threading.Timer(self._seconds, hidden.rename, [new])
            timer.daemon = True
            timer.start()
        return future


def test_files_that_appear_late_are_waited_for_by_name(
    run: Path, joined: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, parts = tmp_path / "run.annals", tmp_path / "run.annals.parts"
    annals_trace.merge(run, output, executor=Lagging(parts, 0.3), slices=SLICES)
    assert output.read_bytes() == joined
    output.unlink()
    monkeypatch.setattr(_distributed, "_PATIENCE_S", 0.1)
    with pytest.raises(UnfinishedError, match=r"slice 2 of 2: FileNotFoundError: .*plan-.*\.json is missing"):
        annals_trace.merge(run, output, executor=Lagging(parts, 3600.0), slices=2)
    assert not output.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    at = tmp_path / "disk"
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", at], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: {mounted.stderr.strip()}")
    yield at
    subprocess.run(["umount", at], check=True)


def test_a_full_disk_is_reported_and_what_was_written_is_used(
    run: Path, joined: bytes, small_disk: Path
) -> None:
    before = state(run)
    output = small_disk / "run.annals"
    taken = small_disk / "taken"
    taken.write_bytes(bytes((1 << 20) - len(joined) // 2))
    with pool(2) as executor, pytest.raises(UnfinishedError, match="OSError: .*No space left on device") as caught:
        annals_trace.merge(run, output, executor=executor, slices=SLICES)
    assert 0 < len(caught.value.parts) < SLICES, caught.value.parts
    assert of_merge(output) == ["run.annals.parts"]
    taken.unlink()
    subprocess.run(["mount", "-o", "remount,size=16M", small_disk], check=True)
    with pool(2) as executor:
        annals_trace.merge(run, output, executor=executor, slices=SLICES)
    assert output.read_bytes() == joined
    assert state(run) == before


# ---- Analyses ----


def printed(what: str, inputs: Path) -> str:
    """Returns what one process of ``trace-cli`` prints."""
    done = trace_cli(what, inputs, "--json")
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.mark.parametrize("what", ["regions", "messages", "collectives", "why"])
def test_answers_are_those_of_one_process_byte_for_byte(what: str, mpi: Path, demo: Path) -> None:
    with pool(2) as executor:
        # Recordings of four ranks; a trace; and recordings with losses, but without MPI.
        for inputs in (mpi.parent / "run", mpi, *([demo.parent] if what in ("regions", "why") else [])):
            expected = printed(what, inputs)
            assert annals_trace.analyse(inputs, what) == expected
            assert annals_trace.analyse(inputs, what, executor=executor) == expected
            for groups in () if what == "why" else (1, 3, 9):
                assert annals_trace.analyse(inputs, what, executor=executor, groups=groups) == expected


def test_functions_without_names_are_told_apart_by_their_builds(tmp_path: Path) -> None:
    for build in ("one", "two"):
        source, program = tmp_path / f"{build}.c", tmp_path / build / "solver"
        program.parent.mkdir()
        # Both have functions at the same addresses.
        source.write_text(
            f'const char *build = "{build}";\n'
            "volatile int sum;\n"
            "__attribute__((noinline)) static void solve(int i) { sum += i; }\n"
            "int main(void) { for (int i = 0; i < 1000; i++) solve(i); return build[0] == 0; }\n"
        )
        options = ["-O1", "-finstrument-functions", "-s", "-Wl,--build-id"]
        subprocess.run(["cc", *options, source, "-o", program], check=True)
        done = trace_cli("record", "-o", tmp_path / f"of-{build}", "--", program)
        assert done.returncode == 0, done.stderr
        runs = tmp_path / "runs"
        runs.mkdir(exist_ok=True)
        for file in (tmp_path / f"of-{build}").glob("*.annals"):
            file.rename(runs / f"{build}-{file.name}")
    expected = printed("regions", runs)
    names = [row["region"] for row in json.loads(expected)["regions"] if "solver+" in row["region"]]
    assert len(names) == 4 and len(set(names)) == 2, names
    with pool(2) as executor:
        assert annals_trace.analyse(runs, "regions", executor=executor) == expected


def test_too_many_groups_are_refused(mpi: Path) -> None:
    for groups in (0, 4097, 2.5, "3"):
        with pytest.raises(ValueError, match="groups is from 1 to 4096"):
            annals_trace.analyse(mpi, "messages", groups=groups)  # type: ignore[arg-type]


def test_analyses_that_inputs_have_no_events_for_are_refused(run: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        for each in (None, executor):
            with pytest.raises(ValueError, match="nothing has the role send or receive"):
                annals_trace.analyse(run, "messages", executor=each)
            with pytest.raises(FileNotFoundError, match="absent"):
                annals_trace.analyse(tmp_path / "absent", "regions", executor=each)
            with pytest.raises(ValueError, match="what is regions, messages, collectives or why"):
                annals_trace.analyse(run, "guess", executor=each)
    with pytest.raises(UnfinishedError, match="why: .*another worker"):
        annals_trace.analyse(run, "why", executor=Broken())


class Broken(Executor):
    """Takes no tasks."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise ConnectionError("there is no more, and another worker is not found")


# ---- Arguments ----


def test_wrong_arguments_are_refused_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.annals"
    with pytest.raises(FileNotFoundError, match="absent"):
        annals_trace.merge(tmp_path / "absent", output)
    with pytest.raises(ValueError, match="slices is from 1 to 4096"):
        annals_trace.merge(run, output, slices=0)
    with pytest.raises(ValueError, match="causality is off, check or repair"):
        annals_trace.merge(run, output, causality="guess")
    with pytest.raises(TypeError, match="a path, or several"):
        annals_trace.merge([], output)
    with pytest.raises(FileNotFoundError, match="absent.json"):
        annals_trace.merge(run, output, plan=tmp_path / "absent.json")
    output.write_text("a letter")
    with pytest.raises(ValueError, match="is not an Annals trace; it was not replaced"):
        annals_trace.merge(run, output)
    assert output.read_text() == "a letter"
    assert list(tmp_path.iterdir()) == [output]


def test_ctrl_c_ends_a_merge_in_this_process(run: Path, joined: bytes, tmp_path: Path) -> None:
    output = tmp_path / "run.annals"
    program = (
        "import _thread, sys, annals_trace\n"
        "seen = lambda step, done, of: _thread.interrupt_main() if (step, done) == ('slices', 0) else None\n"
        "annals_trace.merge(sys.argv[1], sys.argv[2], slices=8, progress=seen)\n"
    )
    done = run_python(program, run, output)
    assert done.returncode != 0 and done.stderr.strip().endswith("KeyboardInterrupt"), done.stderr
    assert of_merge(output) == ["run.annals.parts"]
    annals_trace.merge(run, output, slices=SLICES)
    assert output.read_bytes() == joined


# ---- Datasets ----

TABLES = ("events", "calls", "regions", "metrics", "drops", "messages")
#: Columns that are numbers within a group of ranks.
NUMBERS = ["call", "parent"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of four ranks that call different regions."""
    directory = tmp_path_factory.mktemp("ranks") / "run"
    for rank in range(4):
        environment = {**os.environ, "ANNALS_RANK": str(rank), "ANNALS_RANKS": "4"}
        script = RECORD.replace('"inner"', f'"inner {rank}"')
        if rank == 2:
            script += "    recorder.metric('load', 'K').record(1.5)\n"
        done = run_python(script, directory, 1000 * (rank + 1), env=environment)
        assert done.returncode == 0, done.stderr
    return directory


def read(dataset: Path, table: str) -> Any:
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(dataset / table / "**/*.parquet", hive_partitioning=True)
    columns = sorted(set(frame.columns) - set(NUMBERS))
    return frame.select(columns).sort(columns)


@pytest.mark.parametrize("workers", [None, 2])
def test_a_dataset_by_tasks_has_the_rows_of_one_export(workers: int | None, ranks: Path, tmp_path: Path) -> None:
    before = state(ranks)
    output, whole = tmp_path / "tables", tmp_path / "whole"
    done = trace_cli("export", ranks, "-o", whole, "--format", "parquet", "--partition", "rank", "--table", ",".join(TABLES))
    assert done.returncode == 0, done.stderr
    executor = pool(workers) if workers else None
    exported = annals_trace.export(ranks, output, executor=executor, tables=TABLES, groups=3)
    if executor:
        executor.shutdown()
    assert exported.rows["events"] == 4 * 10_000 + 1
    assert exported.rows["metrics"] == 1
    assert exported.rows["messages"] == exported.rows["drops"] == 0
    manifest = json.loads((output / "_manifest.json").read_text())
    assert list(manifest["tables"]) == list(TABLES)
    polars = pytest.importorskip("polars")
    listed = []
    for table, of in manifest["tables"].items():
        assert of["rows"] == exported.rows[table]
        schemas = set()
        for file in of["files"]:
            listed.append(output / file["path"])
            assert listed[-1].stat().st_size == file["bytes"]
            schemas.add(tuple(polars.read_parquet_schema(listed[-1]).items()))
        assert len(schemas) == (of["rows"] != 0), f"{table}: {schemas}"
        if of["rows"] != 0:
            assert read(output, table).equals(read(whole, table)), table
    assert sorted(output.rglob("*.parquet")) == sorted(listed)
    assert exported.files == len(listed)
    assert of_merge(output) == ["tables"]
    assert state(ranks) == before


def test_a_dataset_of_damaged_recordings_has_their_losses(ranks: Path, tmp_path: Path) -> None:
    copy, output, whole = tmp_path / "run", tmp_path / "tables", tmp_path / "whole"
    shutil.copytree(ranks, copy)
    damaged = sorted(copy.glob("*.annals"))[1]
    damaged.write_bytes(flip(0.3)(damaged.read_bytes()))
    tables = ["events", "calls", "drops"]
    done = trace_cli("export", copy, "-o", whole, "--format", "parquet", "--partition", "rank", "--table", ",".join(tables))
    assert done.returncode == 3, done.stderr
    exported = annals_trace.export(copy, output, tables=tables)
    assert exported.rows["events"] < 40_001
    assert exported.rows["drops"] != 0
    for table in tables:
        assert read(output, table).equals(read(whole, table)), table


def test_engines_read_only_the_ranks_that_are_asked_for(ranks: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    output = tmp_path / "tables"
    annals_trace.export(ranks, output, tables="calls")
    source = f"read_parquet('{output}/calls/*/*.parquet', hive_partitioning = true)"
    counts = duckdb.sql(f"select rank, count(*) from {source} group by rank order by rank").fetchall()
    assert counts == [(rank, 2000 * (rank + 1)) for rank in range(4)]
    # Files of other ranks are not even opened, but for the first, which has the columns.
    for rank in (1, 3):
        for file in (output / "calls" / f"rank={rank}").iterdir():
            file.write_bytes(b"no Parquet")
    assert duckdb.sql(f"select count(*) from {source} where rank = 2").fetchall() == [(6000,)]


class Refusing(Executor):
    """Runs tasks in this process, and fails that of a part."""

    def __init__(self, part: str) -> None:
        self._part = part

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if fn is _distributed.export_part and args[0].directory.endswith(self._part):
            future.set_exception(ConnectionError("the worker is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_the_same_export_does_only_what_is_missing(ranks: Path, tmp_path: Path) -> None:
    output, parts = tmp_path / "tables", tmp_path / "tables.parts"
    with pytest.raises(UnfinishedError, match="group 2 of 4: ConnectionError: the worker is gone"):
        annals_trace.export(ranks, output, executor=Refusing("-2"), groups=4)
    assert of_merge(output) == ["tables.parts"]
    before = {file: file.stat().st_mtime_ns for file in parts.rglob("*.parquet")}
    assert len(before) == 6
    # What a killed worker leaves has no result.
    (part,) = parts.glob("group-*-3.json")
    part.unlink()
    with pytest.raises(UnfinishedError, match="group 2 of 4"):
        annals_trace.export(ranks, output, executor=Refusing("-2"), groups=4)
    after = {file: file.stat().st_mtime_ns for file in parts.rglob("*.parquet")}
    assert after.keys() == before.keys()
    assert sum(after[file] == before[file] for file in before) == 4
    exported = annals_trace.export(ranks, output, groups=4)
    assert exported.rows == {"events": 40_001, "calls": 20_000}
    assert of_merge(output) == ["tables"]
    # A dataset is replaced by one, and by nothing else.
    assert annals_trace.export(ranks, output, tables=["calls"]).rows == {"calls": 20_000}
    assert sorted(entry.name for entry in output.iterdir()) == ["_manifest.json", "calls"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="mine exists, and is no dataset that export wrote"):
        annals_trace.export(ranks, tmp_path / "mine")
    with pytest.raises(ValueError, match="tables are events, .*, not 'call'"):
        annals_trace.export(ranks, output, tables=["call"])
    with pytest.raises(ValueError, match="name at least one"):
        annals_trace.export(ranks, output, tables=[])
    with pytest.raises(FileNotFoundError, match="gone"):
        annals_trace.export(tmp_path / "gone", output)
    assert (output / "_manifest.json").exists()


def test_workers_of_an_export_are_killed(ranks: Path, tmp_path: Path) -> None:
    output = tmp_path / "tables"
    failed: list[object] = []
    for _ in attempts(failed):
        shutil.rmtree(output, ignore_errors=True)
        executor = pool(2)
        executor.submit(os.getpid).result()
        processes = executor._processes
        killer = kill_after(random.uniform(0, 0.4), lambda: list(processes))
        try:
            annals_trace.export(ranks, output, executor=executor)
        except UnfinishedError as error:
            failed.append(error)
            assert not output.exists()
        killer.join()
        executor.shutdown(wait=False)
        for process in list(processes.values()):
            process.kill()
        assert annals_trace.export(ranks, output).rows == {"events": 40_001, "calls": 20_000}
        assert of_merge(output) == ["tables"]
