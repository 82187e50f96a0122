"""Traces of PyTorch's profiler next to HolisticTraceAnalysis and to `json` with pandas: time and peak memory.

    python3 -m venv venv && venv/bin/pip install HolisticTraceAnalysis
    venv/bin/python benches/compare/kineto.py TRACE_CLI [DIRECTORY] [MEGABYTES]

Makes traces of 8 ranks in the directory: steps of operators, kernels and collective operations with descriptors, in the way of
Kineto. Each program loads all of them, and says how the time of the GPUs is divided (HTA: `get_temporal_breakdown`).
"""

import json
import os
import random
import subprocess
import sys
import time

RANKS = 8


def make(path, rank, most_bytes):
    numbers = random.Random(rank)
    now, order, correlation, sequence, step = 1000.0, 0, 1, 0, 0
    with open(path, "w") as file:
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": RANKS, "ranks": list(range(RANKS))}]
        info = {"backend": "nccl", "rank": rank, "world_size": RANKS, "pg_count": 1, "pg_config": groups}
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU", "numSms": 100}], "distributedInfo": info,
                "baseTimeNanoseconds": 1790857026000000000, "displayTimeUnit": "ms"}
        file.write(json.dumps(head)[:-1] + ',\n"traceEvents": [\n')

        def put(category, name, pid, tid, start, duration, arguments):
            event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(start, 3),
                     "dur": round(duration, 3), "args": arguments}
            file.write(json.dumps(event) + ",\n")

        while file.tell() < most_bytes:
            start = now
            device = now
            for layer in range(200):
                order += 1
                launch = {"External id": order, "cbid": 211, "correlation": correlation}
                put("cpu_op", f"aten::op_{layer % 40}", 100 + rank, 100 + rank, now, 18,
                    {"External id": order, "Sequence number": order, "Fwd thread id": 0, "Ev Idx": order,
                     "Input Dims": [[64, 1024], [1024, 1024]], "Input type": ["float", "float"]})
                put("cuda_runtime", "cudaLaunchKernel", 100 + rank, 100 + rank, now + 5, 6, launch)
                begin = max(now + 9, device + 0.5)
                device = begin + 5 + numbers.random() * 10
                put("kernel", f"void kernel_{layer % 25}<float>(int, float const*)", 0, 7, begin, device - begin,
                    {**launch, "device": 0, "context": 1, "stream": 7, "queued": 0, "grid": [64, 1, 1], "block": [256, 1, 1],
                     "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.6, "warps per SM": 4.8,
                     "est. achieved occupancy %": 30})
                correlation += 1
                now += 20 + numbers.random() * 5
            order += 1
            descriptor = {"External id": order, "Collective name": "allreduce", "In msg nelems": 1048576, "Out msg nelems": 1048576,
                          "dtype": "Float", "Group size": RANKS, "Process Group Name": "0", "Process Group Description": "default_pg",
                          "Process Group Ranks": str(list(range(RANKS))), "Seq": sequence, "correlation": correlation}
            put("cpu_op", "record_param_comms", 100 + rank, 100 + rank, now, 30, descriptor)
            put("cuda_runtime", "cudaLaunchKernel", 100 + rank, 100 + rank, now + 10, 6, {"correlation": correlation, "External id": order})
            meet = (sequence + 1) * 8000.0 + 1000
            begin = max(now + 15, device)
            put("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0, 20, begin,
                max(meet - begin, 50), {**descriptor, "device": 0, "context": 1, "stream": 20})
            correlation += 1
            sequence += 1
            now = max(now + 40, meet + 60)
            put("user_annotation", f"ProfilerStep#{step}", 100 + rank, 100 + rank, start - 5, now - start - 10, {"External id": 1})
            step += 1
        file.write('{"ph": "M", "name": "process_name", "pid": %d, "tid": 0, "ts": 0, "args": {"name": "python"}}\n]}\n' % (100 + rank))


HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
print(TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False))
"""
PANDAS = """
import glob, json, sys, pandas
frames = []
for rank, path in enumerate(sorted(glob.glob(sys.argv[1] + "/*.json"))):
    frame = pandas.DataFrame(json.load(open(path))["traceEvents"])
    frames.append(frame[frame.ph == "X"].assign(rank=rank))
print(pandas.concat(frames).groupby(["rank", "cat"]).dur.sum())
"""


def measured(command):
    """Returns seconds and the peak memory of a command and its children together, MiB."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    peak = 0
    while process.poll() is None:
        resident = 0
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat") as file:
                    session = int(file.read().rsplit(") ", 1)[1].split()[3])
                with open(f"/proc/{entry}/statm") as file:
                    pages, shared = map(int, file.read().split()[1:3])
            except OSError:
                continue  # It has ended.
            if session == process.pid:
                resident += (pages - shared) * os.sysconf("SC_PAGE_SIZE")
        peak = max(peak, resident)
        time.sleep(0.02)
    if process.returncode not in (0, 3):
        raise SystemExit(process.stderr.read().decode()[-2000:])
    return time.monotonic() - started, peak / 2**20


def main():
    program = sys.argv[1]
    directory = sys.argv[2] if len(sys.argv) > 2 else "kineto-traces"
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 512
    os.makedirs(directory, exist_ok=True)
    for rank in range(RANKS):
        path = f"{directory}/rank{rank}.json"
        if not os.path.exists(path):
            make(path, rank, megabytes * 2**20 // RANKS)
    inputs = sorted(f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(".json"))
    rows = {
        "trace-merge": [program, "merge", "-q", "--force", "-o", f"{directory}/run.annals", *inputs],
        "trace-cli regions": [program, "regions", f"{directory}/run.annals"],
        "trace-cli collectives": [program, "collectives", f"{directory}/run.annals"],
        "HTA": [sys.executable, "-c", HTA, directory],
        "json and pandas": [sys.executable, "-c", PANDAS, directory],
    }
    print(f"{megabytes} MiB of JSON, {RANKS} ranks\n\n| program | seconds | peak MiB |\n|---|---|---|")
    for name, command in rows.items():
        seconds, peak = measured(command)
        print(f"| {name} | {seconds:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
