"""What recording costs an MPI program: interleaved runs with and without libannals_mpi.so.

usage: mpi.py LIBRARY MPI-DIRECTORY [PAIRS [EDGE [STEPS]]]

MPI-DIRECTORY has bin/mpicc and bin/mpirun, as target/mpi/mpich. EDGE is that of each process's part of the stencil's
grid: by default HPCG's own, 104; with a small one, as 24, MPI's calls are much of a step. Prints

- ns per MPI_Send to MPI_PROC_NULL beside the floor of two clock reads in the same rounds (medians, and the least);
- ns per call of a ping-pong: of a burst that fits into the recorder's buffer, and of a long one, whose events are
  encoded and written meanwhile by a thread that on a machine without idle processors takes its time from the ranks;
  beside it, in the same rounds, a library that only reads the clock before and behind each call;
- a recorded call before and after a longjmp out of MPI;
- instructions per call out of callgrind, of the program's thread and of the recorder's (where valgrind is installed);
- the ratio of a stencil's times with the upper bound of its 95 % interval (the ratios' logarithms, Student's t);
- bytes on disk per call of the stencil, with and without what a process writes once.

What numbering messages and recording what calls wait for costs (AMD Zen 4, two cores, MPICH, 26 November 2026): of MPI_Isend,
MPI_Recv and MPI_Wait 566 instructions per call instead of 402, and 45.4 ns instead of 34.5 more than unrecorded (least of 12
interleaved rounds). Of the 492 instructions of the three calls, 83 number the sent message, 294 number the received one and
record an event before the call, and 66 record the request of the wait; the rest is in the library. An event costs about 10 ns
here, so that calls that record one more cannot cost less. MPI_Send to MPI_PROC_NULL, which records none, costs the same as before.
On disk: 0.07 bytes more for each event of these calls, 0.2 of the stencil's.
"""

import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

library, mpi = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).absolute()
pairs, edge, steps = (int(v) for v in (sys.argv[3:] + ["30", "104", "60"][len(sys.argv) - 3:]))
here = pathlib.Path(__file__).resolve().parent
scratch = pathlib.Path(tempfile.mkdtemp(prefix="annals-mpi-bench-"))
recording = scratch / "run"
environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", ANNALS_DIR=str(recording))


def numbers(command, **more):
    shutil.rmtree(recording, ignore_errors=True)
    output = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True,
                            env=dict(environment, **more)).stdout
    return [[float(word) for word in line.split()] for line in output.splitlines()]


def run(processes, program, arguments, recorded):
    """Runs without a library (0), with Annals (1), or with the one that only reads the clock (2)."""
    command = [mpi / "bin/mpirun", "-n", processes]
    preload = ("", str(library), str(scratch / "mpi_floor.so"))[recorded]
    if "openmpi" in mpi.name:
        command += ["--oversubscribe", "--bind-to", "none", "-x", "LD_PRELOAD=" + preload]
    else:
        command += ["-genv", "LD_PRELOAD", preload]
    return numbers([*command, scratch / program, *arguments])


def on_disk():
    return sum(path.stat().st_size for path in recording.iterdir())


def interleaved(count, kinds, *what):
    """Rows of `count` runs of each kind."""
    rows = [[] for _ in range(kinds)]
    for turn in range(count):
        for place in range(kinds):
            kind = (turn + place) % kinds
            rows[kind].extend(run(*what, kind))
    return rows


def instructions(mode, calls):
    """Of so many rounds of calls: the program's thread, and the recorder's writer."""
    counts = []
    for recorded in (False, True):
        preload = {"LD_PRELOAD": str(library)} if recorded else {}
        both = []
        for count in (calls // 8, calls):
            out = scratch / "callgrind.out"
            for old in scratch.glob("callgrind.out*"):
                old.unlink()
            numbers(["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}",
                     scratch / "mpi_path", mode, 1, count], **preload)
            # The first thread is the program's, the second one the recorder's.
            sums = []
            for thread in ("-01", "-02"):
                path = scratch / ("callgrind.out" + thread)
                lines = path.read_text().splitlines() if path.exists() else []
                sums += [int(line.split()[1]) for line in lines if line.startswith(("summary:", "totals:"))][:1] or [0]
            both.append(sums)
        counts.append([(both[1][n] - both[0][n]) / (calls - calls // 8) for n in (0, 1)])
    return counts[1][0] - counts[0][0], counts[1][1]


for source in ("mpi_path", "mpi_stencil"):
    subprocess.run([mpi / "bin/mpicc", "-O2", here / (source + ".c"), "-o", scratch / source], check=True)

subprocess.run([mpi / "bin/mpicc", "-O2", "-shared", "-fPIC", here / "mpi_floor.c", "-o", scratch / "mpi_floor.so", "-ldl"],
               check=True)

several = max(3, pairs // 6)
plain, recorded = interleaved(several, 2, 1, "mpi_path", ["send", 10, 100_000])
for name, choose in (("median", statistics.median), ("least", min)):
    send = [choose(row[0] for row in rows) for rows in (plain, recorded)]
    floor = choose(row[1] for row in plain)
    print("MPI_Send to MPI_PROC_NULL, %s: %.1f ns, recorded %.1f: +%.1f; two clock reads %.1f" %
          (name, *send, send[1] - send[0], floor))
plain, recorded = interleaved(several, 2, 1, "mpi_path", ["jump", 1, 50_000])
for name, choose in (("median", statistics.median), ("least", min)):
    before, after = (choose(row[n] for row in recorded) for n in (0, 1))
    print("MPI_Send to MPI_PROC_NULL, recorded, %s: %.1f ns before a longjmp out of MPI, %.1f after it: %+.1f %%" %
          (name, before, after, 100 * (after / before - 1)))
for name, rounds, calls in (("burst", 5, 20_000), ("long", 5, 400_000)):
    rows_of = interleaved(several, 3, 2, "mpi_path", ["ping", rounds, calls])
    shutil.rmtree(recording, ignore_errors=True)
    run(2, "mpi_path", ["ping", rounds, calls], 1)
    size = on_disk() / (2 * rounds * 2 * calls)
    for what, choose in (("median", statistics.median), ("least", min)):
        plain, recorded, floor = (choose(row[0] for row in rows) for rows in rows_of)
        print("ping-pong of 8 bytes, %s, %s: %.1f ns per call, recorded %.1f: %+.1f %%; clock reads alone %+.1f %%; "
              "%.2f bytes per call" %
              (name, what, plain, recorded, 100 * (recorded / plain - 1), 100 * (floor / plain - 1), size))
if shutil.which("valgrind"):
    for mode, functions, calls in (("send", "MPI_Send to MPI_PROC_NULL", 1), ("self", "MPI_Isend, MPI_Recv, MPI_Wait", 3)):
        own, writer = instructions(mode, 40_000)
        print("instructions per call of %s: +%.0f in the program's thread, %.0f in the recorder's" %
              (functions, own / calls, writer / calls))

ratios = []
for pair in range(pairs):
    order = (False, True) if pair % 2 else (True, False)
    times = {kind: run(2, "mpi_stencil", [edge, steps], kind)[0][0] for kind in order}
    ratios.append(math.log(times[True] / times[False]))
# What a process writes however few calls it makes: definitions, twice.
sizes = []
for count in (1, steps):
    shutil.rmtree(recording, ignore_errors=True)
    run(2, "mpi_stencil", [edge, count], True)
    sizes.append(on_disk())
mean, error = statistics.mean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
# Student's t of 97.5 %, within 0.02 from ten pairs on.
quantile = 1.96 + 2.6 / (pairs - 1)
print("stencil of edge %d, %d pairs: ratio %.4f, upper 95 %% bound %.4f" %
      (edge, pairs, math.exp(mean), math.exp(mean + quantile * error)))
print("on disk: %.2f bytes per call of so few (%d), %.2f of each further one" %
      (sizes[1] / (2 * steps * 7), 2 * steps * 7, (sizes[1] - sizes[0]) / (2 * (steps - 1) * 7)))
shutil.rmtree(scratch)
