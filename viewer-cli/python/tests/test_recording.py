"""Recording from Python."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pandas
import pytest
from conftest import MPIRUN, answer, run_python, trace_cli

import annals_trace

NEEDS_MONITORING = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="NOT TESTED: sys.monitoring needs Python 3.12"
)


def record(tmp_path: Path, program: str, **settings: object) -> annals_trace.Trace:
    """Runs a program that records to the directory in its first argument."""
    done = run_python("import annals_trace, sys\n" + program, tmp_path / "run", **settings)
    assert done.returncode == 0, done.stderr
    trace = annals_trace.open(tmp_path / "run")
    broken = trace.regions(columns=["unmatched_leaves", "unleft_calls"]).to_pandas().sum()
    assert broken.to_dict() == {"unmatched_leaves": 0, "unleft_calls": 0}
    return trace


def counts(trace: annals_trace.Trace) -> dict[str, int]:
    regions = trace.calls(columns=["region"]).to_pandas().region
    return {str(name): int(count) for name, count in regions.value_counts().items() if count}


def test_what_cannot_be_traced_is_said_when_it_is_decorated() -> None:
    for wrong in (int, "solve", classmethod(len), 5):
        with pytest.raises(TypeError, match="is no function"):
            annals_trace.traced(wrong)
    partial = annals_trace.traced(functools.partial(max, 3))
    assert partial(4) == 4


def test_regions_metrics_and_events(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import threading\n"
        "with annals_trace.Recorder(sys.argv[1]) as recorder:\n"
        "    with annals_trace.region('outer'):\n"
        "        for _ in range(3):\n"
        "            with recorder.region('inner'): pass\n"
        "    try:\n"
        "        with annals_trace.region('fails'): raise KeyError\n"
        "    except KeyError: pass\n"
        "    def work():\n"
        "        with annals_trace.region('in a thread'): pass\n"
        "    threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "    [thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "    residual = recorder.metric('residual', 'm')\n"
        "    for value in (1.5, -2, 0): residual.record(value)\n"
        "    request = recorder.event_type('request', path=str, size=int, share=float, raw=bytes)\n"
        "    request.record(path='/ä', size=-2**63, share=0.5, raw=b'\\0a')\n"
        "    request.record(path='/b')\n"
        "    statistics = recorder.statistics()\n"
        "assert statistics['dropped'] == 0 and statistics['raised'] > 0\n"
        "with annals_trace.region('not recorded'): pass\n",
    )
    assert counts(trace) == {"outer": 1, "inner": 3, "fails": 1, "in a thread": 2}
    assert trace.metrics().to_pandas().value.tolist() == [1.5, -2.0, 0.0]
    events = trace.events("request").to_pandas()
    assert events["path"].tolist() == ["/ä", "/b"]
    assert events["size"].tolist() == [-(2**63), pandas.NA]
    assert events["raw"].tolist() == [b"\0a", None]
    calls = trace.calls().to_pandas()
    outer = calls[calls.region == "outer"].iloc[0]
    assert (calls[calls.region == "inner"].parent == outer.call).all()


def test_decorators(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import asyncio\n"
        "@annals_trace.traced\n"
        "def function(a, *, b): return a + b\n"
        "@annals_trace.traced(name='named')\n"
        "def generator(n):\n"
        "    for i in range(n):\n"
        "        try: got = yield i\n"
        "        except ValueError: yield 'caught'\n"
        "    return 'end'\n"
        "@annals_trace.traced\n"
        "async def coroutine(): await asyncio.sleep(0); return 7\n"
        "@annals_trace.traced\n"
        "async def asynchronous():\n"
        "    yield 1\n"
        "    yield 2\n"
        "assert function(1, b=2) == 3, 'without a recorder, too'\n"
        "with annals_trace.Recorder(sys.argv[1]):\n"
        "    assert function(1, b=2) == 3 and function.__name__ == 'function'\n"
        "    def outer():\n"
        "        return (yield from generator(2))\n"
        "    assert list(outer()) == [0, 1]\n"
        "    it = generator(1); next(it); assert it.throw(ValueError) == 'caught'; it.close()\n"
        "    async def main():\n"
        "        assert await coroutine() == 7\n"
        "        assert [x async for x in asynchronous()] == [1, 2]\n"
        "    asyncio.run(main())\n",
    )
    assert counts(trace) == {
        "__main__.function": 1,
        "named": 5,
        "__main__.coroutine": 1,
        "__main__.asynchronous": 3,
        "await": 1,
    }


def test_tasks_have_locations_of_their_own(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import asyncio\n"
        "async def work(n):\n"
        "    with annals_trace.region('outer'):\n"
        "        for _ in range(3):\n"
        "            with annals_trace.region('inner'): await asyncio.sleep(0.001 * (n % 3))\n"
        "async def main():\n"
        "    await asyncio.gather(*[work(n) for n in range(200)])\n"
        "    await asyncio.gather(*[work(n) for n in range(5)])\n"
        "with annals_trace.Recorder(sys.argv[1], buffer='64M'):\n"
        "    asyncio.run(main())\n",
    )
    calls = trace.calls().to_pandas()
    at_tasks = calls[calls.location.astype(str).str.contains("asyncio task")]
    assert len(at_tasks) == len(calls)
    # 128 tasks have a location at a time; what the others did is counted.
    assert 128 <= calls.location.nunique() <= 128
    dropped = trace.losses().to_pandas()
    assert int(dropped["count"].sum()) == 2 * 4 * (200 - 128)
    begun = trace.events("asyncio.task").to_pandas()
    assert len(begun) == 128 + 5


def test_a_task_that_awaits_does_not_work(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import asyncio, time\n"
        "@annals_trace.traced(name='crunch')\n"
        "async def crunch():\n"
        "    await asyncio.sleep(0.05)\n"
        "    with annals_trace.region('parse'): time.sleep(0.2)\n"
        "@annals_trace.traced(name='tick')\n"
        "async def tick():\n"
        "    for _ in range(10): await asyncio.sleep(0.02)\n"
        "async def main():\n"
        "    tasks = [asyncio.create_task(tick(), name=f'ticker {n}') for n in range(3)]\n"
        "    tasks.append(asyncio.create_task(crunch(), name='cruncher'))\n"
        "    await asyncio.gather(*tasks)\n"
        "with annals_trace.Recorder(sys.argv[1]):\n"
        "    asyncio.run(main())\n",
    )
    regions = trace.regions().to_pandas().groupby("region", observed=True)
    exclusive = regions["exclusive_ns"].sum()
    assert 0.2e9 <= exclusive["parse"] < 0.3e9
    assert exclusive["tick"] < 0.05e9 and exclusive["crunch"] < 0.05e9
    assert exclusive["await"] > 0.5e9
    said = trace_cli("why", tmp_path / "run").stdout
    assert re.match(
        r"Task cruncher kept the event loop from 3 other tasks for 2\d\d\.\d ms, \d\d\.\d % of the run; most of it is in parse\.", said
    ), said
    assert "communication" not in said


def test_locations_have_the_names_of_threads(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import threading\n"
        "recorder = annals_trace.Recorder(sys.argv[1])\n"
        "def work():\n"
        "    before = open('/proc/thread-self/comm').read()\n"
        "    with recorder.region('work'): pass\n"
        "    assert open('/proc/thread-self/comm').read() == before\n"
        "for name in ('loader', 'ThreadPoolExecutor-0_3'):\n"
        "    thread = threading.Thread(target=work, name=name); thread.start(); thread.join()\n"
        "recorder.finish()\n",
    )
    assert set(trace.calls().to_pandas().location.astype(str)) == {"loader", "Thread..tor-0_3"}


def test_a_region_inside_itself_and_exceptions(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "recorder = annals_trace.Recorder(sys.argv[1])\n"
        "region = recorder.region('again')\n"
        "with region, region: pass\n"
        "recorder.finish()\n"
        "recorder.finish()\n",
    )
    assert counts(trace) == {"again": 2}


def test_misuse_says_what_is_right(tmp_path: Path) -> None:
    program = (
        "import annals_trace, sys\n"
        "def fails(work):\n"
        "    try: work()\n"
        "    except Exception as error: print(f'{type(error).__name__}: {error}')\n"
        "    else: print('nothing')\n"
        "fails(lambda: annals_trace.Recorder(sys.argv[1], buffer='much'))\n"
        "fails(lambda: annals_trace.Recorder('/proc/none'))\n"
        "recorder = annals_trace.Recorder(sys.argv[1])\n"
        "fails(lambda: recorder.metric('m', type=str))\n"
        "fails(lambda: recorder.event_type('e', x=list))\n"
        "event = recorder.event_type('e', x=int)\n"
        "fails(lambda: event.record(y=1))\n"
        "fails(lambda: event.record(x='1'))\n"
        "fails(lambda: event.record(x=2**70))\n"
        "fails(lambda: recorder.event_type('e', x=str))\n"
        "fails(lambda: recorder.region('a\\0b'))\n"
        "fails(lambda: recorder.region('\\ud800'))\n"
        "other = annals_trace.Recorder(sys.argv[1])\n"
        "assert not other.is_own and other.path == recorder.path\n"
    )
    done = run_python(program, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, expected in zip(
        lines,
        ["ValueError: ", "OSError: ", "TypeError: a metric's type", "TypeError: x: an element's type",
         "TypeError: the event type has no element 'y'", "TypeError: x: is an int", "TypeError: x: no 64-bit integer",
         "ValueError: ", "ValueError: a region's name", "UnicodeEncodeError"],
        strict=True,
    ):
        assert line.startswith(expected), lines


def test_a_fork_records_for_itself(tmp_path: Path) -> None:
    done = run_python(
        "import annals_trace, os, sys\n"
        "with annals_trace.Recorder(sys.argv[1]):\n"
        "    with annals_trace.region('parent'): pass\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with annals_trace.region('lost'): pass\n"
        "        with annals_trace.Recorder(sys.argv[1]) as own:\n"
        "            assert own.is_own\n"
        "            with annals_trace.region('child'): pass\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n",
        tmp_path / "run",
    )
    assert done.returncode == 0, done.stderr
    recordings = sorted((tmp_path / "run").glob("*.annals"))
    assert len(recordings) == 2
    found = [counts(annals_trace.open(path)) for path in recordings]
    assert {"parent": 1} in found and {"child": 1} in found


@NEEDS_MONITORING
def test_functions(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        "import asyncio, json, threading, time\n"
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "def generator():\n"
        "    yield 1\n"
        "    yield 2\n"
        "def fails(): raise ValueError\n"
        "def waits(): event.wait(); called()\n"
        "def called(): pass\n"
        "def open_generator():\n"
        "    yield fib(1)\n"
        "    yield fib(1)\n"
        "event = threading.Event()\n"
        "early = threading.Thread(target=waits)\n"
        "early.start()\n"
        "half = open_generator(); next(half)\n"
        "recorder = annals_trace.Recorder(sys.argv[1])\n"
        "recorder.record_functions()\n"
        "event.set(); early.join()\n"
        "next(half); half.close()\n"
        "fib(5); list(generator())\n"
        "try: fails()\n"
        "except ValueError: pass\n"
        "json.dumps([1, 2])\n"
        "class Some:\n"
        "    def method(self): return [fib(1) for _ in range(2)]\n"
        "Some().method()\n"
        "async def leaf(n): await asyncio.sleep(0.001 * n); fib(1)\n"
        "async def top(n):\n"
        "    await leaf(n)\n"
        "async def main():\n"
        "    tasks = [asyncio.create_task(top(n)) for n in range(3)]\n"
        "    cancelled = asyncio.create_task(top(100))\n"
        "    await asyncio.gather(*tasks)\n"
        "    cancelled.cancel()\n"
        "    try: await cancelled\n"
        "    except asyncio.CancelledError: pass\n"
        "asyncio.run(main())\n"
        "recorder.stop_functions()\n"
        "fib(3)\n"
        "recorder.finish()\n",
    )
    found = counts(trace)
    assert found["__main__.fib"] == 1 + 15 + 2 + 3
    assert found["__main__.generator"] == 3
    assert found["__main__.fails"] == 1
    assert found["__main__.called"] == 1
    assert found["__main__.Some.method"] == 1
    assert "__main__.waits" not in found, "it was at work before"
    assert not any(name.startswith(("json.", "asyncio.", "threading.")) for name in found)
    calls = trace.calls().to_pandas()
    leaves = calls[calls.region == "__main__.leaf"]
    assert leaves.location.astype(str).str.contains("asyncio task").all()
    assert leaves.location.nunique() == 4
    files = calls[calls.region == "__main__.fib"]
    assert set(files.file.astype(str)) == {"<string>"} and (files.line == 3).all()


@NEEDS_MONITORING
def test_functions_of_chosen_modules_and_in_c(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import json\ndef f(): return sorted([len('a'), abs(-1)])\n")
    (tmp_path / "two.py").write_text("import one\ndef g(): return one.f()\n")
    program = (
        "sys.path.insert(0, sys.argv[2])\n"
        "import one, two, json\n"
        "def main(): two.g(); json.dumps({}); json.JSONEncoder(indent=1).encode([1])\n"
        "recorder = annals_trace.Recorder(sys.argv[1])\n"
        "recorder.record_functions({arguments})\n"
        "main()\n"
        "recorder.stop_functions(); recorder.finish()\n"
    )

    def found(name: str, arguments: str) -> dict[str, int]:
        done = run_python(
            "import annals_trace, sys\n" + program.replace("{arguments}", arguments), tmp_path / name, tmp_path
        )
        assert done.returncode == 0, done.stderr
        return counts(annals_trace.open(tmp_path / name))

    assert found("a", "'one'") == {"one.f": 1}
    assert found("b", "exclude='one,__main__'") == {"two.g": 1}
    with_c = found("c", "'one', c_functions=True")
    assert with_c == {"one.f": 1, "sorted": 1, "len": 1, "abs": 1}
    assert any(name.startswith("json.") for name in found("d", "standard_library=True"))


@NEEDS_MONITORING
def test_another_profiler_is_named(tmp_path: Path) -> None:
    done = run_python(
        "import annals_trace, sys\n"
        "sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, 'other')\n"
        "annals_trace.Recorder(sys.argv[1]).record_functions()\n",
        tmp_path / "run",
    )
    assert "other records functions" in done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python has sys.monitoring")
def test_without_monitoring_it_says_so(tmp_path: Path) -> None:
    done = run_python(
        "import annals_trace, sys\nannals_trace.Recorder(sys.argv[1]).record_functions()\n", tmp_path / "run"
    )
    assert "Python 3.12" in done.stderr


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "app.py"
    path.write_text(text)
    return path


@NEEDS_MONITORING
def test_a_script_is_run_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def helper(): pass\n")
    path = script(
        tmp_path,
        "import sys, beside\n"
        "def main():\n    beside.helper(); print(sys.argv[1:], __name__, __file__); sys.exit(4)\n"
        "main()\n",
    )
    done = run_python(
        "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('annals_trace', run_name='__main__', alter_sys=True)",
        "-o", tmp_path / "run", path, "--flag", "-o",
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout == f"['--flag', '-o'] __main__ {path}\n"
    found = counts(annals_trace.open(tmp_path / "run"))
    assert found == {"__main__.<module>": 1, "__main__.main": 1, "beside.<module>": 1, "beside.helper": 1}


@NEEDS_MONITORING
def test_functions_mpi_and_messages_are_in_one_trace(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "def exchange(step):\n"
        "    request = world.Isend(bytearray(1000), (world.rank + 1) % world.size, tag=step)\n"
        "    world.Recv(bytearray(1000), (world.rank - 1) % world.size, tag=step)\n"
        "    request.Wait()\n"
        "for step in range(10): exchange(step)\n"
        "world.Barrier()\n",
    )
    done = trace_cli(
        "record", "-o", tmp_path / "run", "--merge", "--",
        MPIRUN, "-n", "4", sys.executable, "-m", "annals_trace", "--modules", "__main__", path,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    trace = annals_trace.open(tmp_path / "run.annals")
    assert len(list((tmp_path / "run").glob("*.annals"))) == 4, "one recording for each rank"
    calls = trace.calls().to_pandas()
    exchanges = calls[calls.region == "__main__.exchange"]
    assert len(exchanges) == 40
    sends = calls[calls.region.astype(str).str.startswith("MPI_Isend")]
    assert len(sends) == 40
    assert set(sends.parent) <= set(exchanges.call), "MPI's calls are in those of the functions"
    assert trace.messages().count() == 40
    assert answer("verify", tmp_path / "run.annals") is not None
