"""Streams: what they read and when, and what misuse of them does."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import polars
import pyarrow
import pytest
from conftest import run_python

import annals_trace


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of more than a second, with many chunks."""
    directory = tmp_path_factory.mktemp("long")
    program = (
        "import annals_trace, sys, time\n"
        "recorder = annals_trace.Recorder(sys.argv[1], buffer='256M')\n"
        "regions = [recorder.region(f'region {n}') for n in range(10)]\n"
        "until, rounds = time.monotonic() + 1.2, 0\n"
        "while time.monotonic() < until or rounds < 1500:\n"
        "    rounds += 1\n"
        "    for region in regions:\n"
        "        for _ in range(50):\n"
        "            with region: pass\n"
        "assert recorder.finish()['dropped'] == 0\n"
    )
    done = run_python(program, directory / "run")
    assert done.returncode == 0, done.stderr
    merged = subprocess.run(
        [annals_trace.executable(), "merge", directory / "run", "-o", directory / "run.annals", "--quiet"],
        capture_output=True, text=True,
    )
    assert merged.returncode == 0, merged.stderr
    return directory / "run.annals"


def decoded(trace: annals_trace.Trace, work: object) -> int:
    """Returns how many chunks some work decodes."""
    before = trace._native._decoded_chunks()
    work()
    return trace._native._decoded_chunks() - before


def test_each_consumer_reads_once_and_only_what_it_needs(long: Path) -> None:
    trace = annals_trace.open(long)
    calls = trace.calls()
    chunks = decoded(trace, calls.count)
    assert chunks > 5
    rows = calls.count()

    def sql(query: str, table_: annals_trace.Table) -> list:
        # DuckDB finds the variable. It asks for several streams, and reads one of them.
        return duckdb.sql(query).fetchall()

    assert decoded(trace, lambda: sql("select count(*) from table_", calls)) == chunks
    assert sql("select count(*) from table_", calls) == [(rows,)]
    assert decoded(trace, lambda: sql("select sum(inclusive_ns) from table_", calls)) == chunks
    one = trace.calls(columns=["inclusive_ns"])
    assert decoded(trace, lambda: polars.DataFrame(one)) == chunks
    join = "select count(*) from table_ a join table_ b on a.call = b.call"
    assert decoded(trace, lambda: sql(join, calls)) <= 2 * chunks
    assert sql(join, calls) == [(rows,)]
    window = trace.calls(start="500ms", end="510ms")
    assert decoded(trace, lambda: sql("select count(*) from table_", window)) <= chunks // 4
    # A stream that is made and not read reads nothing.
    assert decoded(trace, lambda: [calls.__arrow_c_stream__() for _ in range(10)]) == 0
    assert decoded(trace, calls.__arrow_c_schema__) == 0


def test_streams_are_independent(long: Path) -> None:
    trace = annals_trace.open(long)
    first, second = (pyarrow.RecordBatchReader.from_stream(trace.calls()) for _ in range(2))
    one, other = first.read_next_batch(), second.read_next_batch()
    assert one.equals(other)
    first.close()
    assert second.read_all().num_rows + other.num_rows == trace.calls().count()


def test_threads_read_while_python_works(long: Path) -> None:
    trace = annals_trace.open(long)
    counted = []

    def count() -> None:
        counted.append(trace.calls().count())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    steps = 0
    while any(thread.is_alive() for thread in threads):
        steps += 1
        time.sleep(0.001)
    assert len(set(counted)) == 1 and len(counted) == 4
    assert steps > 3, "Python's lock is free meanwhile"


def test_a_closed_trace_says_so(demo: Path) -> None:
    with annals_trace.open(demo) as trace:
        calls = trace.calls()
        begun = pyarrow.RecordBatchReader.from_stream(trace.calls())
    assert trace.closed
    for work in (trace.calls, trace.summary, calls.count, calls.to_pandas, calls.__arrow_c_stream__, trace.comm_matrix,
                 trace.timeline, trace.__enter__):
        with pytest.raises(ValueError, match="closed: open it again"):
            work()
    with pytest.raises(Exception, match="closed"):
        polars.DataFrame(calls)
    assert begun.read_all().num_rows > 0, "a stream that has begun continues"
    assert "closed" in repr(trace) and "closed" in trace._repr_html_()
    trace.close()


def test_a_pickled_trace_is_opened_again(demo: Path) -> None:
    trace = annals_trace.open(os.fsencode(demo))
    rows = trace.calls().count()
    for same in (pickle.loads(pickle.dumps(trace)), copy.copy(trace), copy.deepcopy(trace)):
        assert same.paths == trace.paths
        trace.close()
        assert same.calls().count() == rows, "it is independent"
        trace = same
    trace.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(trace)


def test_a_stream_outlives_its_trace(long: Path) -> None:
    trace = annals_trace.open(long)
    rows = trace.calls().count()
    begun = pyarrow.RecordBatchReader.from_stream(trace.calls())
    first = begun.read_next_batch().num_rows
    del trace
    gc.collect()
    assert first + begun.read_all().num_rows == rows


def test_wrong_arguments_say_what_is_right(demo: Path) -> None:
    trace = annals_trace.open(demo)
    for work, error, words in [
        (lambda: trace.calls(columns=["regoin"]), ValueError, "did you mean `region`"),
        (lambda: trace.calls(columns=["xyz"]), ValueError, "it has call, parent"),
        (lambda: trace.calls(columns=[]), ValueError, "at least one"),
        (lambda: trace.calls(columns=["rank", "rank"]), ValueError, "twice"),
        (lambda: trace.calls(start=1.5), TypeError, "nanoseconds"),
        (lambda: trace.calls(start="soon"), ValueError, "start"),
        (lambda: trace.calls(start=True), TypeError, "nanoseconds"),
        (lambda: trace.calls(end=2**70), ValueError, "64-bit"),
        (lambda: trace.calls(start=5, end=4), ValueError, "ends before it starts"),
        (lambda: trace.calls(ranks=99), ValueError, "99"),
        (lambda: trace.calls(ranks=-1), TypeError, "ranks"),
        (lambda: trace.calls(ranks=[]), ValueError, "empty"),
        (lambda: trace.calls(regions="no such region"), ValueError, "no such region"),
        (lambda: trace.calls(regions=7), TypeError, "regions"),
        (lambda: trace.time_profile(10**9), ValueError, "num_bins"),
        (lambda: trace.events("entre"), ValueError, "enter"),
        (lambda: trace.comm_matrix("bytes"), ValueError, "'size', 'count'"),
        (lambda: trace.time_profile(0), ValueError, "num_bins"),
        (lambda: trace.flat_profile("time"), ValueError, "time.exc"),
        (lambda: annals_trace.open(), TypeError, "path"),
        (lambda: annals_trace.open("/no/such/file"), FileNotFoundError, "/no/such/file"),
    ]:
        with pytest.raises(error, match=words.replace("(", r"\(")):
            work()
    # A window without events is a table without rows.
    assert trace.calls(start="1000s").count() == 0
    assert polars.DataFrame(trace.calls(start="1000s")).shape == (0, 17)
    assert len(trace.regions(start="1000s").to_pandas()) == 0


def test_files_that_are_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.annals"
    empty.touch()
    text = tmp_path / "text.annals"
    text.write_text("no trace")
    for path in (empty, text, tmp_path):
        with pytest.raises((ValueError, OSError), match=str(tmp_path)):
            annals_trace.open(path)


def test_a_file_that_is_gone_or_cut_while_it_is_read(long: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.annals"
    copy.write_bytes(long.read_bytes())
    trace = annals_trace.open(copy)
    rows = trace.calls().count()
    copy.unlink()
    assert trace.calls().count() == rows, "an open file stays until it is closed"
    copy.write_bytes(long.read_bytes())
    trace = annals_trace.open(copy)
    os.truncate(copy, copy.stat().st_size // 2)
    assert 0 < trace.events().count() < annals_trace.open(long).events().count()
    assert trace.losses().to_pandas().kind.eq("skipped").any(), "what cannot be read is counted"


def test_interrupts_end_work_soon(long: Path) -> None:
    program = (
        "import annals_trace, os, signal, sys, threading, time, polars, pyarrow\n"
        "trace = annals_trace.open(sys.argv[1])\n"
        "works = [lambda: [trace.calls().count() for _ in range(1000)],\n"
        "         lambda: [trace.calls().to_pandas() for _ in range(1000)],\n"
        "         lambda: [trace.comm_matrix() for _ in range(100000)],\n"
        "         lambda: [polars.DataFrame(trace.calls()) for _ in range(1000)]]\n"
        "for work in works:\n"
        "    def later():\n"
        "        global sent\n"
        "        sent = time.monotonic()\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    timer = threading.Timer(0.2, later)\n"
        "    timer.start()\n"
        "    try:\n"
        "        try: work()\n"
        "        except Exception as error:\n"
        "            # A consumer has exceptions of its own; Ctrl-C follows at the next step of Python.\n"
        "            assert 'interrupted' in str(error), error\n"
        "            for _ in range(10): time.sleep(0.01)\n"
        "        print('went on')\n"
        "    except KeyboardInterrupt:\n"
        "        print(f'{time.monotonic() - sent:.3f}')\n"
        "    timer.join()\n"
    )
    done = run_python(program, long)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split()
    assert len(lines) == 4
    for line in lines:
        # 0.2 s are asked for on a machine without other work; other tests may run at the same time.
        assert float(line) < 2, lines


def test_a_stream_does_not_outlive_a_fork(long: Path) -> None:
    # At many moments: other threads read, decode and send meanwhile, and what they hold stays held in the child.
    program = (
        "import annals_trace, os, sys, time, pyarrow\n"
        "trace = annals_trace.open(sys.argv[1])\n"
        "for moment in range(40):\n"
        "    reader = pyarrow.RecordBatchReader.from_stream(trace.calls())\n"
        "    if moment % 2: reader.read_next_batch()\n"
        "    time.sleep(moment * 0.0002)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            reader.read_next_batch()\n"
        "        except Exception as error:\n"
        "            os.write(1, f'{error}\\n'.encode())\n"
        "        del reader\n"
        "        os.write(1, f'{trace.calls().count()}\\n'.encode())\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "print(trace.calls().count(), flush=True)\n"
    )
    done = run_python(program, long)
    assert done.returncode == 0, done.stderr
    *children, in_parent = done.stdout.splitlines()
    assert len(children) == 80
    assert all("forked" in why for why in children[::2]), children
    assert set(children[1::2]) == {in_parent}


def test_a_forked_child_leaves_its_parents_files(long: Path, tmp_path: Path) -> None:
    """What an archive was converted to is removed by the process that opened it."""
    archive = tmp_path / "archive.otf2"
    exported = subprocess.run([annals_trace.executable(), "export", long, "-o", archive], capture_output=True, text=True)
    assert exported.returncode == 0, exported.stderr
    program = (
        "import annals_trace, os, sys\n"
        "trace = annals_trace.open(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    trace.close()\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(os.listdir(sys.argv[2]))\n"
        "print(trace.calls().count())\n"
        "trace.close()\n"
        "print(os.listdir(sys.argv[2]))\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run_python(program, archive, temporary, env=os.environ | {"TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    while_open, count, closed = done.stdout.splitlines()
    assert "annals-converted" in while_open and closed == "[]"
    assert int(count) == annals_trace.open(long).calls().count()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="NOT TESTED: subinterpreters that refuse need Python 3.12")
def test_a_subinterpreter_is_refused_in_words() -> None:
    program = (
        "try:\n    import _interpreters as interpreters\n"
        "except ImportError:\n    import _xxsubinterpreters as interpreters\n"
        "import sys\n"
        "interpreter = interpreters.create()\n"
        "script = f'import sys; sys.path[:] = {sys.path!r}\\n"
        "try:\\n    import annals_trace\\n    print(\"imported\")\\n"
        "except ImportError as error:\\n    print(error)\\n'\n"
        "found = interpreters.run_string(interpreter, script)\n"
        "print(found, file=sys.stderr)\n"
    )
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    assert "interpreter" in done.stdout.lower(), (done.stdout, done.stderr)


def test_signals_are_left_alone(long: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    annals_trace.open(long).calls().count()
    assert signal.getsignal(signal.SIGINT) is before
