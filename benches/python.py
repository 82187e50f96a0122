"""Tables in Python, and what recording functions costs: figures of one machine.

    python benches/python.py tables TRACE        # of many events, as `cargo bench --profile dist --bench why` leaves one; needs polars
    python benches/python.py archive ARCHIVE     # beside the package otf2; needs otf2
    python benches/python.py functions           # beside cProfile; Python 3.12 or later

`functions` shows two programs: nothing but calls of Python functions; and calls that call functions in C, which cProfile follows
and annals_trace does not unless asked to. A callback that does nothing shows the least that sys.monitoring costs. Each figure has
minimum and median of interleaved rounds.

Beside Pipit (its main branch, one process), by hand, an archive of 400 000 events in 4 locations, on a busy machine with two processors (28
November 2026): reading it takes Pipit 4.6 s, opening it and making a pandas table of all events 0.14 s here; with a flat profile 5.4 s
and 0.14 s.
"""

from __future__ import annotations

import cProfile
import random
import statistics
import subprocess
import sys
import tempfile
import time

import annals_trace

ROUNDS = 7


def peak_mib() -> float:
    """Returns the largest amount of memory that the process has had."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def child(*arguments: str) -> str:
    return subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True).stdout


def tables(path: str) -> None:
    trace = annals_trace.open(path)
    events = trace.summary()["events"]
    print(f"{events:,} events")
    for what in ("count", "one", "five", "all"):
        times = []
        for _ in range(3):
            seconds, before, after = map(float, child("read", path, what).split())
            times.append(seconds)
        rate = events / min(times) / 1e6
        print(
            f"calls, {what}: {min(times):.2f} s (median {statistics.median(times):.2f}), {rate:.1f} M events/s, "
            f"peak {after:.0f} MiB ({before:.0f} before)"
        )
    last = trace.summary()["last_ns"]
    windows, counts = [], []
    for _ in range(30):
        start = random.randrange(0, max(1, last - 10_000_000))
        begin = time.perf_counter()
        counts.append(trace.calls(start=start, end=start + 10_000_000).count())
        windows.append((time.perf_counter() - begin) * 1000)
    print(f"a window of 10 ms in {last / 1e9:.3g} s has {statistics.median(counts):,.0f} calls")
    print(f"calls of 10 ms: {min(windows):.0f} ms, median {statistics.median(windows):.0f}, max {max(windows):.0f}")
    seconds, before, after = map(float, child("read", path, "matrix").split())
    print(f"comm_matrix: {seconds:.2f} s, peak {after:.0f} MiB ({before:.0f} before)")
    program = "import time; begin = time.perf_counter(); import annals_trace; print(time.perf_counter() - begin)"
    imports = [float(subprocess.check_output([sys.executable, "-c", program])) * 1000 for _ in range(5)]
    print(f"import: {min(imports):.0f} ms, median {statistics.median(imports):.0f}")


def read(path: str, what: str) -> None:
    """Reads in another process than `tables`, so that its peak of memory is that of the read."""
    columns = {"one": ["inclusive_ns"], "five": ["rank", "region", "begin_ns", "end_ns", "depth"], "all": None}
    if what in columns:
        import polars
    trace = annals_trace.open(path)
    before = peak_mib()
    begin = time.perf_counter()
    if what == "count":
        trace.calls().count()
    elif what == "matrix":
        trace.comm_matrix()
    else:
        frame = polars.DataFrame(trace.calls(columns=columns[what]))
    print(time.perf_counter() - begin, before, peak_mib())
    if what == "one":
        assert frame.height == trace.calls().count()
        assert trace.regions().to_pandas().calls.sum() == frame.height, "regions count the same calls"


def archive(path: str) -> None:
    import otf2

    def by_otf2() -> int:
        with otf2.reader.open(path) as reader:
            return sum(1 for _ in reader.events)

    def by_annals() -> int:
        return annals_trace.open(path).events().count()

    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {"otf2": [], "annals_trace": []}
    for _ in range(3):
        for name, work in (("otf2", by_otf2), ("annals_trace", by_annals)):
            begin = time.perf_counter()
            count = work()
            times[name].append(time.perf_counter() - begin)
            counts[name] = count
    assert counts["otf2"] == counts["annals_trace"], counts
    for name, seconds in times.items():
        print(f"{name}: {count / min(seconds) / 1e6:.2f} M events/s (median {count / statistics.median(seconds) / 1e6:.2f})")
    print(f"ratio {min(times['otf2']) / min(times['annals_trace']):.0f}")


def function() -> None:
    pass


def calls(count: int) -> None:
    for _ in range(count):
        function()


def function_with_c(values: list) -> None:
    len(values)
    abs(-1)
    isinstance(values, list)
    values.append(1)
    values.pop()


def calls_with_c(count: int) -> None:
    values: list = []
    for _ in range(count):
        function_with_c(values)


def functions() -> None:
    recorder = annals_trace.Recorder(tempfile.mkdtemp(), buffer="64M")
    count = 300_000
    monitoring = sys.monitoring
    tool, events = monitoring.OPTIMIZER_ID, monitoring.events

    def timed(work: object) -> float:
        begin = time.perf_counter()
        work(count)
        return (time.perf_counter() - begin) / count * 1e9

    def recorded(work: object) -> float:
        before = recorder.statistics()["raised"]
        recorder.record_functions()
        try:
            return timed(work)
        finally:
            recorder.stop_functions()
            raised = recorder.statistics()["raised"] - before
            assert raised >= 2 * count, f"{raised} events of {count} calls"

    def profiled(work: object) -> float:
        profile = cProfile.Profile()
        profile.enable()
        try:
            return timed(work)
        finally:
            profile.disable()

    for name, work in (("calls", calls), ("calls that call 5 functions in C", calls_with_c)):
        rows = []
        for _ in range(ROUNDS):
            plain = timed(work)
            rows.append((recorded(work) - plain, profiled(work) - plain))
        own, profile = min(row[0] for row in rows), min(row[1] for row in rows)
        ratio = statistics.median(row[0] / row[1] for row in rows)
        print(f"{name}: annals_trace {own:.0f} ns, cProfile {profile:.0f} ns: {own / profile:.2f} (median {ratio:.2f})")
    one = {}.get

    def begin_only(work: object) -> float:
        monitoring.use_tool_id(tool, "nothing")
        monitoring.register_callback(tool, events.PY_START, one)
        monitoring.set_events(tool, events.PY_START)
        try:
            return timed(work)
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

    added = min(begin_only(calls) - timed(calls) for _ in range(ROUNDS))
    print(f"a callback that does nothing, at the begin only: {added:.0f} ns")
    print(f"dropped {recorder.statistics()['dropped']}")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["help"]
    if command in ("tables", "read", "archive", "functions"):
        globals()[command](*arguments)
    else:
        sys.exit(__doc__)
