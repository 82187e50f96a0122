"""What recording costs an MPI program: interleaved runs with and without libannals_mpi.so.

usage: mpi.py LIBRARY MPI-DIRECTORY [PAIRS [EDGE [STEPS]]]

MPI-DIRECTORY has bin/mpicc and bin/mpirun, as target/mpi/mpich. Prints ns per MPI_Send to MPI_PROC_NULL, the floor of
two clock reads in the same run, ns per call of a ping-pong, bytes on disk per call, and the ratio of a stencil's times
with the upper bound of its 95 % interval (the ratios' logarithms, Student's t).
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
pairs, edge, steps = (int(v) for v in (sys.argv[3:] + ["30", "24", "400"][len(sys.argv) - 3:]))
here = pathlib.Path(__file__).resolve().parent
scratch = pathlib.Path(tempfile.mkdtemp(prefix="annals-mpi-bench-"))
environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def run(processes, program, arguments, recorded):
    command = [mpi / "bin/mpirun", "-n", str(processes)]
    directory = scratch / "run"
    shutil.rmtree(directory, ignore_errors=True)
    preload = str(library) if recorded else ""
    if "openmpi" in mpi.name:
        command += ["--oversubscribe", "--bind-to", "none", "-x", "LD_PRELOAD=" + preload]
    else:
        command += ["-genv", "LD_PRELOAD", preload]
    output = subprocess.run([*command, scratch / program, *map(str, arguments)], capture_output=True, text=True,
                            check=True, env=dict(environment, ANNALS_DIR=str(directory), ANNALS_BUFFER="64M")).stdout
    return [[float(word) for word in line.split()] for line in output.splitlines()]


def on_disk():
    return sum(path.stat().st_size for path in (scratch / "run").iterdir())


for source in ("mpi_path", "mpi_stencil"):
    subprocess.run([mpi / "bin/mpicc", "-O2", here / (source + ".c"), "-o", scratch / source], check=True)

plain, recorded = [], []
for _ in range(max(3, pairs // 6)):
    plain += run(1, "mpi_path", [5], False)
    recorded += run(1, "mpi_path", [5], True)
send = [min(row[0] for row in rows) for rows in (plain, recorded)]
floor = min(row[1] for row in plain + recorded)
print("MPI_Send to MPI_PROC_NULL: %.1f ns, recorded %.1f: +%.1f; two clock reads %.1f" %
      (*send, send[1] - send[0], floor))
plain, recorded = [], []
for _ in range(max(3, pairs // 6)):
    plain += run(2, "mpi_path", [5], False)
    recorded += run(2, "mpi_path", [5], True)
calls = 2 * 5 * (200_000 + 40_000)
ping = [statistics.median(row[2] for row in rows) for rows in (plain, recorded)]
print("ping-pong of 8 bytes: %.1f ns per call, recorded %.1f: %+.1f %%; %.2f bytes per call" %
      (*ping, 100 * (ping[1] / ping[0] - 1), on_disk() / calls))

ratios = []
for pair in range(pairs):
    order = (False, True) if pair % 2 else (True, False)
    times = {kind: run(2, "mpi_stencil", [edge, steps], kind)[0][0] for kind in order}
    ratios.append(math.log(times[True] / times[False]))
mean, error = statistics.mean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
print("stencil, %d pairs: ratio %.4f, upper 95 %% bound %.4f; %.2f bytes per call" %
      (pairs, math.exp(mean), math.exp(mean + 1.70 * error), on_disk() / (2 * steps * 7)))
shutil.rmtree(scratch)
