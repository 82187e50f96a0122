"""The table of all regions of a trace: trace-cli beside a C program over OTF2's local readers, interleaved.

usage: regions.py TRACE [PAIRS [PROCESSES]]

Needs gcc, pkg-config and OTF2 (Debian: libopen-trace-format2-dev), and `cargo build --profile dist -p annals-cli`. Writes
the trace as an OTF2 archive beside it unless that is there, checks that both tables are the same, and prints least and
median seconds of each and their ratio. PAIRS (default 11); PROCESSES (default 2) share the work of the C program.
"""

import csv
import io
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

trace = pathlib.Path(sys.argv[1]).resolve()
pairs, processes = (int(v) for v in (sys.argv[2:] + ["11", "2"][len(sys.argv) - 2:]))
here = pathlib.Path(__file__).resolve().parent
programs = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", here.parent.parent / "target")) / "dist"
archive = trace.with_suffix(".otf2-archive")
if not archive.exists():
    subprocess.run([programs / "trace-cli", "merge", trace, "--format", "otf2", "--causality", "off", "-o", archive],
                   check=True, stdout=subprocess.DEVNULL)
anchor = next(archive.glob("*.otf2"))
scratch = tempfile.TemporaryDirectory(prefix="annals-regions-")
rival = pathlib.Path(scratch.name) / "otf2_regions"
flags = subprocess.run(["pkg-config", "--cflags", "--libs", "otf2"], check=True, capture_output=True, text=True)
subprocess.run(["cc", "-O3", "-o", rival, here / "c/otf2_regions.c", *flags.stdout.split()], check=True)


def timed(command):
    start = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - start, output


of_otf2 = [rival, anchor, str(processes)]
of_annals = [programs / "trace-cli", "regions", trace, "--csv"]
times = {"OTF2": [], "Annals": []}
for _ in range(pairs):
    for name, command in (("OTF2", of_otf2), ("Annals", of_annals)):
        seconds, output = timed(command)
        times[name].append(seconds)
        if name == "OTF2":
            lines = (line.split("\t") for line in output.splitlines())
            theirs = {line[0]: [int(cell) for cell in line[1:]] for line in lines}
        else:
            columns = "calls inclusive_ns exclusive_ns min_ns max_ns p50_ns p95_ns p99_ns".split()
            rows = csv.DictReader(io.StringIO(output))
            ours = {row["region"]: [int(row[column] or 0) for column in columns] for row in rows if row["calls"] != "0"}
if ours != theirs:
    sys.exit("the tables differ")

print(f"{'':8}{'least s':>10}{'median s':>10}")
for name, seconds in times.items():
    print(f"{name:8}{min(seconds):10.4f}{statistics.median(seconds):10.4f}")
ratios = sorted(theirs / ours for theirs, ours in zip(times["OTF2"], times["Annals"]))
print(f"OTF2 takes {statistics.median(ratios):.1f} times as long (of {pairs} pairs: {ratios[0]:.1f} to {ratios[-1]:.1f}); "
      f"{len(ours)} regions, {processes} processes of OTF2")
