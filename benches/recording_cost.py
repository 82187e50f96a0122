"""How much a recording takes by what `trace-cli record` says, next to how much longer a program takes with it.

Three programs: short functions compiled with -finstrument-functions, messages of MPI, and both. Each is run in turn without and with
`trace-cli record`, and times itself. Prints for each the least and the median time of both, the difference as a share of the recorded
run, what `record` says, and the ratio of the two.

    python3 benches/recording_cost.py --trace-cli target/dist/trace-cli --mpi target/mpi/mpich/bin [--rounds 9]
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef MPI
#include <mpi.h>
#endif
#define PLAIN __attribute__((no_instrument_function))
static volatile unsigned long sink;
PLAIN static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
PLAIN static unsigned long work(unsigned long x, int n) { for (int i = 0; i < n; i++) x = x * 6364136223846793005ul + i; return x; }
#ifdef FUNCTIONS
__attribute__((noinline)) static unsigned long leaf(unsigned long x) { return work(x, 100); }
__attribute__((noinline)) static unsigned long step(unsigned long x) { return leaf(x) ^ leaf(x + 1); }
#else
PLAIN static unsigned long step(unsigned long x) { return work(x, 300); }
#endif
PLAIN int main(int argc, char **argv) {
    long steps = atol(argv[1]);
    int rank = 0;
#ifdef MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    double begin = now();
    for (long i = 0; i < steps; i++) {
        sink += step(i);
#ifdef MPI
        int value = i, other = 1 - rank;
        if (rank == 0) MPI_Send(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1) MPI_Send(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
#endif
    }
    double took = now() - begin;
#ifdef MPI
    MPI_Finalize();
#endif
    if (rank == 0) printf("%.6f\n", took);
    return 0;
}
"""

PROGRAMS = [
    ("functions", ["-DFUNCTIONS", "-finstrument-functions"], False, 1_000_000),
    ("messages", ["-DMPI"], True, 200_000),
    ("both", ["-DMPI", "-DFUNCTIONS", "-finstrument-functions"], True, 200_000),
]


def build(directory, name, flags, is_mpi, mpi):
    source = directory / "program.c"
    source.write_text(SOURCE)
    compiler = str(mpi / "mpicc") if is_mpi else "cc"
    built = {}
    for kind, less in [("plain", "-finstrument-functions"), ("recorded", "")]:
        built[kind] = directory / f"{name}-{kind}"
        kept = [flag for flag in flags if flag != less]
        subprocess.run([compiler, "-O2", "-w", *kept, str(source), "-o", str(built[kind])], check=True)
    return built


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace-cli", type=pathlib.Path, required=True)
    parser.add_argument("--mpi", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    environment = dict(os.environ)
    for of in ["REDUCE", "BARRIER"]:
        environment[f"MPIR_CVAR_{of}_POSIX_INTRA_ALGORITHM"] = "mpir"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, flags, is_mpi, steps in PROGRAMS:
            built = build(scratch, name, flags, is_mpi, arguments.mpi)
            launcher = [str(arguments.mpi / "mpirun"), "-n", "2"] if is_mpi else []
            steps = str(int(steps * arguments.scale))
            plain, recorded, said = [], [], []
            for _ in range(arguments.rounds):
                command = [*launcher, str(built["plain"]), steps]
                ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                plain.append(float(ran.stdout))
                output = scratch / "run"
                shutil.rmtree(output, ignore_errors=True)
                record = [str(arguments.trace_cli), "record", "-o", str(output), "--"]
                command = [*record, *launcher, str(built["recorded"]), steps]
                ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                recorded.append(float(ran.stdout))
                words = subprocess.run([str(arguments.trace_cli), "info", str(output)], capture_output=True, text=True).stdout
                found = re.search(r"recording took ([0-9.]+) % ± ([0-9.]+) % of the run", words)
                span = re.search(r"span +([0-9.]+) (s|ms)", words)
                span = float(span[1]) * (1 if span[2] == "s" else 1e-3)
                said.append((float(found[1]) / 100 * span, float(found[2]) / 100 * span))
            least = min(recorded) - min(plain)
            median = statistics.median(recorded) - statistics.median(plain)
            predicted = statistics.median(of for of, _ in said)
            error = statistics.median(of for _, of in said)
            print(
                f"{name:<10} plain {min(plain):.3f} {statistics.median(plain):.3f} s, recorded {min(recorded):.3f} "
                f"{statistics.median(recorded):.3f} s: {least:.3f} {median:.3f} s more; said {predicted:.3f} ± {error:.3f} s; "
                f"ratio {predicted / least:.2f} {predicted / median:.2f}",
                flush=True,
            )


main()
