"""What recording costs an OpenMP program: interleaved runs, two threads, pinned.

usage: openmp.py LIBRARY LIBOMP INCLUDE [ROUNDS]

LIBRARY is libannals_mpi.so; LIBOMP the directory of LLVM's libomp.so, as target/libomp/19/usr/lib/llvm-19/lib; INCLUDE that of omp.h and
omp-tools.h, as target/libomp/include. Prints for each construct of `openmp_path.c`, least and median of the rounds:

- with LLVM's runtime: ns with empty callbacks, ns recorded, and what is more for each event that is recorded;
- with GCC's: ns unrecorded, ns recorded, and what is more for each event.

Numbers after a construct are the threads of its team. With one, nothing waits for another thread.

Two cores of a virtual AMD EPYC (1 December 2026, least of 7 rounds, profile release): 8 to 15 ns an event with LLVM's runtime, 9 to 25 with GCC's. A
parallel region of two threads takes 160 to 190 ns more where the threads run close to each other (440 ns with empty callbacks, and
520 of GCC's runtime), and 250 to 560 where they do not (1,130 and 1,070 ns): seven events follow each other in it, and one
line of memory goes from the first thread to the other.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

library, libomp, include = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 9
here = pathlib.Path(__file__).resolve().parent
scratch = pathlib.Path(tempfile.mkdtemp(prefix="annals-openmp-bench-"))
# Events of a construct: of the thread that is measured.
EVENTS = {"lock": 4, "critical": 6, "parallel-1": 5, "dynamic-1": 2, "barrier-1": 2, "task-1": 5, "parallel-2": 5, "barrier-2": 2}


def run(program, preload):
    recording = scratch / "run"
    shutil.rmtree(recording, ignore_errors=True)
    environment = dict(os.environ, LD_PRELOAD=str(preload or ""), ANNALS_DIR=str(recording), ANNALS_BUFFER="256M", OMP_PLACES="cores",
                       OMP_PROC_BIND="close", OMP_WAIT_POLICY="active", ANNALS_COMPRESSION="later")
    said = subprocess.run([scratch / program], capture_output=True, text=True, check=True, env=environment).stdout
    return {name: float(ns) for name, ns in (line.split() for line in said.splitlines())}


subprocess.run(["clang", "-O2", "-fopenmp", "-I", include, here / "openmp_path.c", "-L", libomp, f"-Wl,-rpath,{libomp}", "-o",
                scratch / "llvm"], check=True)
subprocess.run(["gcc", "-O2", "-fopenmp", here / "openmp_path.c", "-o", scratch / "gcc"], check=True)
subprocess.run(["clang", "-O2", "-shared", "-fPIC", "-I", include, here / "openmp_empty.c", "-o", scratch / "empty.so"], check=True)

rows = {"llvm": ([], []), "gcc": ([], [])}
for turn in range(rounds):
    for program, floor in (("llvm", scratch / "empty.so"), ("gcc", None)):
        order = ((0, floor), (1, library))
        for kind, preload in order if turn % 2 else order[::-1]:
            rows[program][kind].append(run(program, preload))
for program, (floors, recorded) in rows.items():
    for choice, choose in (("least", min), ("median", statistics.median)):
        for construct, events in EVENTS.items():
            before, after = (choose(row[construct] for row in kind) for kind in (floors, recorded))
            print(f"{program:5} {choice:7} {construct:11} {before:8.1f} ns, recorded {after:8.1f}: +{after - before:7.1f}, "
                  f"{(after - before) / events:6.1f} an event")
shutil.rmtree(scratch)
