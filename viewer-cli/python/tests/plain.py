"""What ``fresh.py`` runs where only the wheel is installed: records and reads, by Python's standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import annals_trace

TABLES = (
    "events", "calls", "regions", "messages", "collectives", "metrics", "losses", "locations", "wait_states", "critical_path",
    "efficiency",
)


def rows(path: Path) -> dict[str, int]:
    with annals_trace.open(path) as trace:
        return {table: getattr(trace, table)().count() for table in TABLES}


def read_demo(texts: str) -> str:
    programs = Path(sys.executable).parent
    subprocess.run([programs / "trace-cli", "demo", "--output", "demo", texts], check=True, stdout=subprocess.DEVNULL)
    # The second name of the same executable merges what the first has recorded.
    recordings = sorted(set(Path("demo").glob("*.annals")) - {Path("demo/run.annals")})
    assert len(recordings) == 4, recordings
    merged = subprocess.run([programs / "trace-merge", *recordings, "-o", "again.annals"], stdout=subprocess.DEVNULL)
    # 3: merged, with losses.
    assert merged.returncode in (0, 3), merged
    found = rows(Path("demo/run.annals"))
    with annals_trace.open("demo/run.annals") as trace:
        summary = trace.summary()
        # The demo's last rank drops events on purpose; they are in no other table.
        assert found["events"] == summary["events"], (found, summary)
        assert found["locations"] == summary["locations"], (found, summary)
        assert found["losses"] > 0 and found["calls"] > 0 and found["regions"] > 0, found
    assert rows(Path("again.annals")) == found, "trace-merge"
    return f"{sum(found.values()):,} rows of {len(found)} tables of the demo"


def add(a: int, b: int) -> int:
    return a + b


def record(directory: Path) -> str:
    output = directory / "recorded"
    with annals_trace.Recorder(output) as recorder:
        step = recorder.region("step")
        for number in range(100):
            with step, recorder.region("inner"):
                recorder.metric("number").record(number)
        if sys.version_info >= (3, 12):
            recorder.record_functions()
            for number in range(50):
                add(number, number)
            recorder.stop_functions()
    with annals_trace.open(output) as trace:
        assert trace.calls(regions="step").count() == 100
        assert trace.calls(regions="inner").count() == 100
        assert trace.metrics().count() == 100
        if sys.version_info >= (3, 12):
            assert trace.calls(regions="*add").count() == 50
            return "regions and functions recorded"
    return "regions recorded (functions need Python 3.12)"


def main() -> None:
    texts, directory = sys.argv[1:]
    print(f"{read_demo(texts)}; {record(Path(directory))}")


if __name__ == "__main__":
    main()
