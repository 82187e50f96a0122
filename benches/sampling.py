"""What samples cost: interleaved runs of programs alone, recorded, and recorded with `--sample`.

A loop that computes at the end of 9 and of 20 calls, and the stencil of the tutorial (heat.c) on two ranks. Prints for each

- processor time of the thread that reads the samples, as a share of the program's, and for each sample (medians, and the range);
- how much longer the program takes with samples than without, both least and median: its processor time (of the loop, which has a processor for
  itself), or the time of its steps (of the stencil);
- bytes for each sample: of the compressed recordings more than without samples, and of the merged trace.

    python3 benches/sampling.py --trace-cli target/dist/trace-cli --mpi target/mpi/mpich/bin [--rounds 9] [--period 1ms] [--only heat.c]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

LOOP = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static volatile double sink;
static double now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
__attribute__((noinline)) static void leaf(long rounds) { double sum = 0; for (long i = 1; i <= rounds; i++) sum += 1.0 / i; sink += sum; }
__attribute__((noinline)) static void deeper(int depth, long rounds) {
    if (depth > 0) deeper(depth - 1, rounds); else leaf(rounds);
    sink += depth;
}
int main(int argc, char **argv) {
    double begin = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < 200; i++) deeper(atoi(argv[1]), atol(argv[2]));
    printf("%.6f s\n", now(CLOCK_THREAD_CPUTIME_ID) - begin);
    return argc == 1;
}
"""

HEAT = pathlib.Path(__file__).resolve().parent.parent / "viewer-cli/book/src/heat.c"


def size_of(path):
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def spread(values, unit, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"


class Bench:
    def __init__(self, arguments, scratch):
        self.trace_cli = str(arguments.trace_cli.resolve())
        self.arguments, self.scratch = arguments, scratch
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def call(self, *words):
        """Returns what a command prints. 3 means that events are lost."""
        words = [str(word) for word in words]
        ran = subprocess.run(words, capture_output=True, text=True, env=self.environment)
        assert ran.returncode in (0, 3), (words, ran)
        return ran.stdout

    def seconds(self, *words):
        return float(re.search(r"([0-9.]+) s\b", self.call(*words))[1])

    def record(self, output, options, command):
        shutil.rmtree(output, ignore_errors=True)
        return self.seconds(self.trace_cli, "record", "-q", *options, "-o", output, "--", *command)

    def measure(self, name, command):
        if self.arguments.only not in ("", name):
            return
        plain, recorded, sampled, share, each, of_file, of_trace = [], [], [], [], [], [], []
        without, with_samples, trace = (self.scratch / name for name in ["without", "with", "trace.annals"])
        for _ in range(self.arguments.rounds):
            plain.append(self.seconds(*command))
            recorded.append(self.record(without, [], command))
            sampled.append(self.record(with_samples, [f"--sample={self.arguments.period}"], command))
            found = json.loads(self.call(self.trace_cli, "samples", with_samples, "--json"))
            info = self.call(self.trace_cli, "info", with_samples, "--json")
            reader_ns = sum(int(ns) for ns in re.findall(r'"sampling.time": "(\d+)"', info))
            share.append(100 * reader_ns / found["time_ns"])
            each.append(reader_ns / found["samples"] / 1000)
            less = size_of(without) if without.exists() else 0
            of_file.append((size_of(with_samples) - less) / found["samples"])
            sizes = []
            for run in [with_samples, without]:
                if run.exists():
                    self.call(self.trace_cli, "merge", "--force", "-o", trace, run)
                    sizes.append(size_of(trace))
            of_trace.append((sizes[0] - sum(sizes[1:])) / found["samples"])
        base = recorded if without.exists() else plain
        more = [100 * (of(sampled) / of(base) - 1) for of in [min, statistics.median]]
        print(f"{name}: {found['samples']} samples, {found['lost']} lost")
        print(f"  reader      {spread(share, '%', 2)} of the program's processor time, {spread(each, 'us', 2)} for each sample")
        print(f"  alone {min(plain):.3f} {statistics.median(plain):.3f} s, recorded {min(recorded):.3f} {statistics.median(recorded):.3f} s, "
              f"with samples {min(sampled):.3f} {statistics.median(sampled):.3f} s: {more[0]:+.2f} % (least), {more[1]:+.2f} % (median)")
        print(f"  recording   {spread(of_file, 'bytes', 2)} for each sample, trace {spread(of_trace, 'bytes', 2)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace-cli", type=pathlib.Path, required=True)
    parser.add_argument("--mpi", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--period", default="1ms")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", default="", help="the name of one program, as it is printed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        bench = Bench(arguments, scratch)
        (scratch / "loop.c").write_text(LOOP)
        options = ["-O2", "-g", "-fomit-frame-pointer", "-w"]
        bench.call("cc", *options, scratch / "loop.c", "-o", scratch / "loop")
        bench.call(arguments.mpi / "mpicc", *options, HEAT, "-o", scratch / "heat", "-lm")
        # `_start`, two of the C library, `main`, `deeper` once more than its depth, `leaf`.
        for depth in [9, 20]:
            bench.measure(f"{depth} calls", [scratch / "loop", depth - 6, 4_000_000])
        launch = [arguments.mpi / "mpirun", "-n", 2]
        if "openmpi" in str(arguments.mpi):
            launch += ["--bind-to", "none"]
        bench.measure("heat.c", [*launch, scratch / "heat", arguments.steps, "balanced"])


main()
