#!/usr/bin/env python3
"""Computes what a merge on many nodes costs: plan, slices and join, from constants that were measured on one machine.

`python3 benches/cost_model.py --ranks 100000 --bytes-per-rank 10M` prints a table of the steps: time, memory, bytes, files, and
what limits each step. `--help` lists the properties of the run and of the cluster. `--update viewer-cli/book/src/cost-model.md`
writes the tables of the manual anew, which a test compares with what this program prints.

The plan and the join are one process each: their times are sums. The slices are simulated: processes on nodes that share the
bandwidth and the metadata servers of one file system, with nodes that are slower, and nodes that are killed.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

# ---- Constants ----


@dataclass(frozen=True)
class Constant:
    """A measured number. Seconds are processor time, with all files in the page cache."""

    value: float
    unit: str
    what: str
    #: The command that measured it, and on what.
    source: str


#: Source of the constants for a recording.
MANY = "plan, 16 slices and join of 100,000 recordings of 20 events"

#: All that was measured (AMD EPYC, two processors). Recordings are of a Python program with two regions, on hosts of 128 ranks,
#: unless the source names others. Numbers of files and bytes are those of `strace -f -y`, memory is `ru_maxrss`. A constant for a
#: recording or a chunk is the difference of two runs that differ in nothing else, or the quotient of one that it dominates.
CONSTANTS = {
    # The plan.
    "plan_base": Constant(17 * 2**20, "B", "plan: memory of the program", "`--plan-only` of 20 recordings"),
    "plan_recording": Constant(4.2 * 2**10, "B", "plan: memory for a recording", MANY),
    "plan_chunk": Constant(670, "B", "plan: memory for a chunk", "`--plan-only` of 11,400 and 45,800 chunks"),
    "plan_recording_s": Constant(186e-6, "s", "plan: time for a recording", MANY),
    "plan_chunk_s": Constant(2.6e-6, "s", "plan: time for a chunk", "`--plan-only` of 11,400 and 45,800 chunks"),
    "plan_file": Constant(172, "B", "plan: its file, for a recording", "`--write-plan` of 4,096 and 8,192 recordings"),
    # Opening, by the plan and by each slice.
    "opens": Constant(3, "", "open: opened files for a recording", "`--plan-only` of 8,000 recordings"),
    "reads": Constant(12, "", "open: reads for a recording", "`--plan-only` of 8,000 recordings"),
    "read_recording": Constant(1_720, "B", "open: bytes for a recording", "`--plan-only` of 8,000 recordings"),
    "chunk_reads": Constant(1, "", "open: reads for a chunk", "`--plan-only` of 45,800 chunks"),
    "read_chunk": Constant(109, "B", "open: bytes for a chunk", "`--plan-only` of 45,800 chunks"),
    "chunk_of_page": Constant(0.157, "", "bytes of a chunk, for a byte of a page", "recordings with `ANNALS_PAGE=64K`"),
    # A slice.
    "slice_base": Constant(35 * 2**20, "B", "slice: memory of the program", "`--slice` of one recording"),
    "slice_limit": Constant(256 * 2**20, "B", "slice: memory for events", "the default of `--memory-limit`"),
    "slice_recording": Constant(6.6 * 2**10, "B", "slice: memory for a recording", MANY),
    "slice_recording_s": Constant(220e-6, "s", "slice: time for a recording", MANY),
    "slice_chunk": Constant(670, "B", "slice: memory for a chunk", "`--slice 100/256` of 11,400 and 45,800 chunks"),
    "slice_chunk_s": Constant(2.6e-6, "s", "slice: time for a chunk", "`--slice 100/256` of 11,400 and 45,800 chunks"),
    "definitions": Constant(476, "B", "slice: bytes written for a recording", "slices of 4,096 and 8,192 recordings"),
    "temporary": Constant(4.9, "B", "slice: temporary files, for an event", "merge of 4,608 recordings, 9.2 M events"),
    # The join.
    "join_base": Constant(19 * 2**20, "B", "join: memory of the program", "`--join` of 4 slices, 5 M events"),
    "join_recording": Constant(9.2 * 2**10, "B", "join: memory for a recording", MANY),
    "join_chunk": Constant(5 * 2**10, "B", "join: memory for a chunk of the trace", "`--join` of 12 M to 100 M events, 128 ranks"),
    "join_recording_s": Constant(3.9e-6, "s", "join: time for a recording of a slice", MANY),
    "join_byte_s": Constant(1 / 600e6, "s", "join: time for a byte", "`--join` of 4 slices, 178 MB"),
}

#: Events per second of a merge with one thread, by the number of streams. Source: `bash benches/compare/run.sh --merging --alone
#: --locations 1,4,64,1024,16384` (the table of the manual's page about merging).
MERGE_RATES = [(1, 16.2e6), (4, 15.3e6), (64, 13.4e6), (1024, 8.9e6), (16384, 4.3e6)]
#: More streams than this are merged in several passes, with temporary files.
STREAMS_AT_ONCE = 4096
#: Events of a chunk of the trace: for each stream, at least, at most.
TRACE_CHUNK_EVENTS = (64, 1 << 16, 1 << 18)
#: Most slices of a plan.
MOST_SLICES = 4096


def constant(name: str) -> float:
    return CONSTANTS[name].value


def merge_rate(streams: int) -> float:
    """Returns events per second with one thread, between the measured numbers of streams by the logarithm."""
    for (few, fast), (many, slow) in zip(MERGE_RATES, MERGE_RATES[1:]):
        if streams <= many:
            part = math.log(max(streams, few) / few) / math.log(many / few)
            return fast + part * (slow - fast)
    return MERGE_RATES[-1][1]


# ---- A run and a cluster ----


@dataclass(frozen=True)
class Run:
    """What was recorded."""

    ranks: int = 100_000
    bytes_per_rank: float = 10e6
    #: Of recordings, and of the trace.
    bytes_per_event: float = 1.3
    trace_bytes_per_event: float = 1.8
    #: `ANNALS_PAGE`. A full page becomes a chunk.
    page: int = 64 << 10

    @property
    def bytes(self) -> float:
        return self.ranks * self.bytes_per_rank

    @property
    def events(self) -> float:
        return self.bytes / self.bytes_per_event

    @property
    def chunk_bytes(self) -> float:
        return self.page * constant("chunk_of_page")

    @property
    def chunks(self) -> float:
        return self.ranks * math.ceil(self.bytes_per_rank / self.chunk_bytes)

    @property
    def trace_bytes(self) -> float:
        return self.events * self.trace_bytes_per_event

    @property
    def trace_chunks(self) -> float:
        for_a_stream, least, most = TRACE_CHUNK_EVENTS
        return math.ceil(self.events / min(max(for_a_stream * self.ranks, least), most))


@dataclass(frozen=True)
class Cluster:
    """What the run is merged on."""

    nodes: int = 64
    cores: int = 64
    memory: float = 512e9
    #: Bytes per second of a node's network, and of the file system.
    node_bandwidth: float = 10e9
    bandwidth: float = 200e9
    #: Opened files per second, of the whole file system.
    metadata: float = 50e3
    #: Seconds of a small read or of opening a file, as one process waits for it.
    latency: float = 100e-6
    slices: int = 4096
    #: Share of the nodes that are slower, and by how much.
    slow_share: float = 0.02
    slow_factor: float = 2.0
    #: Mean time until a node is killed, seconds, and how long it is absent. 0 means that none is.
    kill_s: float = 0.0
    absent_s: float = 600.0
    seed: int = 1


@dataclass
class Step:
    """What a step costs."""

    name: str
    seconds: float
    processes: int
    #: Of a process, bytes.
    memory: float
    #: Of the node that reads and writes most, bytes.
    read: float
    written: float
    #: By all processes.
    opened: float
    limit: str
    #: Whether a process fits into the memory of a node.
    fits: bool
    #: Temporary files of a node, bytes.
    temporary: float = 0.0
    retries: int = 0


def limit_of(parts: dict[str, float]) -> str:
    return max(parts, key=lambda name: parts[name])


def plan(run: Run, cluster: Cluster) -> Step:
    """One process opens all recordings, one after the other. It reads the heads of all chunks, and no events."""
    parts = {
        "processor": run.ranks * constant("plan_recording_s") + run.chunks * constant("plan_chunk_s"),
        "waiting for small reads": small_reads(run) * cluster.latency,
    }
    memory = constant("plan_base") + run.ranks * constant("plan_recording") + run.chunks * constant("plan_chunk")
    opened = run.ranks * constant("opens")
    return Step(
        "plan", sum(parts.values()), 1, memory, opened_bytes(run), run.ranks * constant("plan_file"), opened, limit_of(parts),
        memory <= cluster.memory,
    )  # fmt: skip


def small_reads(run: Run) -> float:
    """Returns how many times a process waits for the file system until it has opened all recordings."""
    return run.ranks * (constant("opens") + constant("reads")) + run.chunks * constant("chunk_reads")


def opened_bytes(run: Run) -> float:
    return run.ranks * constant("read_recording") + run.chunks * constant("read_chunk")


def join(run: Run, cluster: Cluster) -> Step:
    """One process copies the chunks of all slices."""
    definitions = cluster.slices * run.ranks * constant("definitions")
    read, written = run.trace_bytes + definitions, run.trace_bytes
    processor = run.trace_bytes * constant("join_byte_s") + cluster.slices * run.ranks * constant("join_recording_s")
    # The file system reads ahead and writes later, while the processor works.
    parts = {
        "one processor": processor,
        "bandwidth of a node": (read + written) / min(cluster.node_bandwidth, cluster.bandwidth),
    }
    memory = constant("join_base") + run.ranks * constant("join_recording") + run.trace_chunks * constant("join_chunk")
    return Step(
        "join", max(parts.values()), 1, memory, read, written, cluster.slices, limit_of(parts), memory <= cluster.memory
    )


# ---- The simulation of the slices ----


class Shared:
    """A resource that tasks share equally, but none uses more of it than it can. Tasks of one kind use equally much."""

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        #: By how much a task can use: what each task has used so far, and when tasks end in terms of this.
        self._used: dict[float, float] = {}
        self._ends: dict[float, list[tuple[float, int]]] = {}
        self._of: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, task: int, work: float, most: float) -> None:
        used = self._used.setdefault(most, 0.0)
        heapq.heappush(self._ends.setdefault(most, []), (used + work, task))
        self._of[task] = most

    def remove(self, task: int) -> None:
        if (most := self._of.pop(task, None)) is not None:
            self._ends[most] = [end for end in self._ends[most] if end[1] != task]
            heapq.heapify(self._ends[most])

    def _rates(self) -> dict[float, float]:
        left, tasks = self._capacity, len(self._of)
        rates = {}
        for most in sorted(most for most, ends in self._ends.items() if ends):
            rates[most] = min(most, left / tasks)
            left -= rates[most] * len(self._ends[most])
            tasks -= len(self._ends[most])
        return rates

    def is_full(self) -> bool:
        """Returns whether tasks get less than they could use."""
        return any(rate < most * (1 - 1e-9) for most, rate in self._rates().items())

    def next_end(self) -> float:
        """Returns the seconds until a task ends."""
        rates = self._rates()
        return min(((self._ends[most][0][0] - self._used[most]) / rate for most, rate in rates.items()), default=math.inf)

    def advance(self, seconds: float) -> list[int]:
        """Lets time pass. Returns the tasks that have ended."""
        ended = []
        for most, rate in self._rates().items():
            self._used[most] += rate * seconds
            ends = self._ends[most]
            while ends and ends[0][0] <= self._used[most] * (1 + 1e-9) + 1e-9:
                ended.append(heapq.heappop(ends)[1])
                del self._of[ended[-1]]
        return ended


def slices(run: Run, cluster: Cluster) -> Step:
    """Each slice is a task of one thread: it opens all recordings, then reads, merges and writes its part."""
    of = cluster.slices
    memory = constant("slice_base") + constant("slice_limit") + run.ranks * constant("slice_recording")
    memory += run.chunks * constant("slice_chunk")
    fits = memory <= cluster.memory
    # One that does not fit is computed all the same, so that the table shows what else it would cost.
    slots = max(min(cluster.cores, int(cluster.memory / memory)), 1)
    open_s = run.ranks * constant("slice_recording_s") + run.chunks * constant("slice_chunk_s")
    open_s += small_reads(run) * cluster.latency
    opened = run.ranks * constant("opens")
    # Chunks at the borders are read by two slices.
    read = min(run.bytes, run.bytes / of + run.ranks * run.chunk_bytes)
    written = run.trace_bytes / of + run.ranks * constant("definitions")
    merge_s = run.events / of / merge_rate(run.ranks)
    if fits:
        done = simulate(cluster, slots, (opened, open_s), (read + written, merge_s))
    else:
        rounds = math.ceil(of / (slots * cluster.nodes))
        done = Simulated(rounds * (open_s + merge_s), math.ceil(of / cluster.nodes), "memory", 0)
    temporary = run.events / of * constant("temporary") if run.ranks > STREAMS_AT_ONCE else 0.0
    return Step(
        "slices", done.seconds, min(of, slots * cluster.nodes), memory, done.most * (read + opened_bytes(run)), done.most * written,
        (of + done.retries) * opened, done.limit, fits, temporary * slots, done.retries,
    )  # fmt: skip


@dataclass(frozen=True)
class Simulated:
    seconds: float
    #: Most slices that one node worked on.
    most: int
    limit: str
    retries: int


def simulate(cluster: Cluster, slots: int, to_open: tuple[float, float], to_merge: tuple[float, float]) -> Simulated:
    """Simulates the slices. The arguments are what a slice uses of the shared resource, and its seconds alone on a node."""
    chance = random.Random(cluster.seed)
    slow = set(range(round(cluster.nodes * cluster.slow_share)))
    opening, merging = Shared(cluster.metadata), Shared(cluster.bandwidth)
    waiting = list(range(cluster.slices))[::-1]
    node_of: dict[int, int] = {}
    free = [slots] * cluster.nodes
    # Slices are spread over the nodes before a node gets a second one.
    queue = [(-slots, node) for node in range(cluster.nodes)]
    heapq.heapify(queue)
    absent: list[tuple[float, int]] = []
    worked = [0] * cluster.nodes
    now, left, retries = 0.0, cluster.slices, 0
    spent = {"processor": 0.0, "waiting for small reads": 0.0, "metadata of the file system": 0.0}
    spent |= {"bandwidth of the file system": 0.0, "bandwidth of a node": 0.0}
    # What a process can use: limited by its own time, and by its part of the node's network.
    share = cluster.node_bandwidth / slots
    own = "processor" if to_merge[0] / to_merge[1] < share else "bandwidth of a node"
    kill = chance.expovariate(cluster.nodes / cluster.kill_s) if cluster.kill_s else math.inf

    def start_tasks() -> None:
        while waiting and queue:
            tasks, node = heapq.heappop(queue)
            if -tasks != free[node] or free[node] == 0:
                # An earlier state of the node.
                continue
            task = waiting.pop()
            free[node] -= 1
            node_of[task] = node
            worked[node] += 1
            factor = cluster.slow_factor if node in slow else 1.0
            opening.add(task, to_open[0], to_open[0] / to_open[1] / factor)
            heapq.heappush(queue, (-free[node], node))

    while left:
        start_tasks()
        until = min(opening.next_end(), merging.next_end(), kill - now, absent[0][0] - now if absent else math.inf)
        # What limits most of the tasks, weighted by time.
        opens = "metadata of the file system" if opening.is_full() else "waiting for small reads"
        spent[opens] += until * len(opening)
        spent["bandwidth of the file system" if merging.is_full() else own] += until * len(merging)
        opened, merged = opening.advance(until), merging.advance(until)
        now += until
        for task in opened:
            factor = cluster.slow_factor if node_of[task] in slow else 1.0
            merging.add(task, to_merge[0], min(to_merge[0] / to_merge[1] / factor, share))
        for task in merged:
            node = node_of.pop(task)
            free[node] += 1
            heapq.heappush(queue, (-free[node], node))
            left -= 1
        while absent and absent[0][0] <= now:
            node = heapq.heappop(absent)[1]
            free[node] = slots
            heapq.heappush(queue, (-slots, node))
        if kill <= now:
            kill = now + chance.expovariate(cluster.nodes / cluster.kill_s)
            node = chance.randrange(cluster.nodes)
            if all(node != other for _, other in absent):
                for task in [task for task, at in node_of.items() if at == node]:
                    opening.remove(task)
                    merging.remove(task)
                    del node_of[task]
                    waiting.append(task)
                    retries += 1
                free[node] = 0
                heapq.heappush(absent, (now + cluster.absent_s, node))
    return Simulated(now, max(worked), limit_of(spent), retries)


# ---- Tables ----


def size(count: float) -> str:
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= factor:
            return f"{digits(count / factor)} {unit}"
    return f"{digits(count)} B"


def span(seconds: float) -> str:
    for unit, factor in (("years", 365 * 86400.0), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{digits(seconds / factor)} {unit}"
    return f"{digits(seconds)} s"


def number(count: float) -> str:
    for unit, factor in ((" T", 1e12), (" G", 1e9), (" M", 1e6)):
        if count >= factor:
            return f"{digits(count / factor)}{unit}"
    return f"{count:,.0f}"


def digits(value: float) -> str:
    """Prints two significant digits, and all of those before the point."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def steps(run: Run, cluster: Cluster) -> list[Step]:
    return [plan(run, cluster), slices(run, cluster), join(run, cluster)]


def limit(step: Step, cluster: Cluster) -> str:
    return step.limit if step.fits else f"memory: a node has {size(cluster.memory)}"


def table_of_steps(run: Run, cluster: Cluster) -> str:
    rows = [
        [step.name, span(step.seconds) if step.fits else f"({span(step.seconds)})", f"{step.processes:,}", size(step.memory),
         size(step.read), size(step.written), size(step.temporary) if step.temporary else "-", number(step.opened),
         limit(step, cluster)]
        for step in steps(run, cluster)
    ]  # fmt: skip
    head = ["step", "time", "processes", "memory of one", "a node reads", "a node writes", "its temporary files", "opened files", "limit"]
    return table(head, rows)


def table_of_constants() -> str:
    def value(constant: Constant) -> str:
        if constant.unit == "B":
            return size(constant.value)
        if constant.unit != "s":
            return f"{constant.value:g}"
        return f"{constant.value * 1e6:.3g} us" if constant.value >= 1e-6 else f"{constant.value * 1e9:.2g} ns"

    return table(["what", "value", "measured by"], [[c.what, value(c), c.source] for c in CONSTANTS.values()])


#: Merges by one process with one thread that were measured: recordings, events, bytes of the recordings, seconds.
MEASURED = [(512, 10_240_000, 11_667_045, 1.0), (3_968, 7_936_000, 15_719_350, 1.6), (4_608, 9_216_000, 18_768_829, 2.0)]


def table_of_checks() -> str:
    rows = []
    for ranks, events, length, seconds in MEASURED:
        run = Run(ranks, length / ranks, length / events)
        whole = Cluster(nodes=1, slices=1, latency=0.0, metadata=1e9, bandwidth=1e12, node_bandwidth=1e12)
        rows.append([f"{ranks:,}", number(events), span(seconds), span(slices(run, whole).seconds)])
    return table(["recordings", "events", "measured", "model"], rows)


#: Rows of the comparison: what is merged.
def variants() -> list[tuple[str, Run]]:
    full = Run(bytes_per_rank=10e9)
    large = replace(full, page=1 << 20)
    return [
        ("all", full),
        ("all, pages of 1M", large),
        ("1,000 ranks, pages of 1M", replace(large, ranks=1_000)),
        ("100 ranks, pages of 1M", replace(large, ranks=100)),
        ("1 % of all events, pages of 1M", replace(large, bytes_per_rank=100e6)),
        ("0.1 % of all events, pages of 1M", replace(large, bytes_per_rank=10e6)),
    ]


def fastest(run: Run) -> Cluster:
    """Returns the cluster with the number of slices that takes least time, out of a few."""
    clusters = [Cluster(slices=count) for count in (64, 256, 1024, 4096)]
    return min(clusters, key=lambda cluster: sum(step.seconds for step in steps(run, cluster)))


def table_of_variants() -> str:
    rows = []
    for name, run in variants():
        cluster = fastest(run)
        whole = [span(step.seconds) if step.fits else f"needs {size(step.memory)}" for step in steps(run, cluster)]
        rows.append([name, size(run.bytes), number(run.events), *whole, f"{cluster.slices:,}"])
    return table(["what is merged", "recordings", "events", "plan", "slices", "join", "number of slices"], rows)


def table_of_slices() -> str:
    """What the number of slices does to a run."""
    rows = []
    for count in (64, 256, 1024, 4096):
        run, cluster = Run(page=1 << 20), Cluster(slices=count)
        written, joined = slices(run, cluster), join(run, cluster)
        total = count * min(run.bytes, run.bytes / count + run.ranks * run.chunk_bytes)
        rows.append([f"{count:,}", span(written.seconds), size(total), span(joined.seconds), written.limit])
    return table(["slices", "time of the slices", "they read", "time of the join", "limit of the slices"], rows)


def table_of_kills() -> str:
    rows = []
    for hours in (0, 1000, 100, 10):
        clusters = [Cluster(slices=256, kill_s=hours * 3600.0, seed=seed) for seed in range(20)]
        done = [slices(Run(page=1 << 20), cluster) for cluster in clusters]
        retries = sum(step.retries for step in done) / len(done)
        times = [step.seconds for step in done]
        rows.append(
            [f"every {hours:,} h" if hours else "never", f"{retries:.1f}", span(sum(times) / len(times)), span(max(times))]
        )
    return table(["a node is killed", "slices begun again, mean", "time of the slices, mean", "longest of 20"], rows)


def tables() -> dict[str, str]:
    """Returns the tables of the manual by name."""
    return {
        "constants": table_of_constants(),
        "checks": table_of_checks(),
        "steps": table_of_steps(Run(), Cluster(slices=256)),
        "all": table_of_steps(Run(bytes_per_rank=10e9), Cluster()),
        "variants": table_of_variants(),
        "slices": table_of_slices(),
        "kills": table_of_kills(),
    }


def update(page: str) -> str:
    """Returns a page with its tables written anew. A comment before each names it."""
    for name, text in tables().items():
        found = list(re.finditer(rf"(<!-- cost_model\.py: {name} -->\n)((?:\|.*\n)*)", page))
        if len(found) != 1:
            sys.exit(f"cost_model.py: the page has {len(found)} tables `{name}`: expected 1")
        page = page[: found[0].end(1)] + text + "\n" + page[found[0].end(2) :]
    return page


# ---- Arguments ----


def amount(text: str) -> float:
    """Parses a number with an optional K, M, G, T or P."""
    found = re.fullmatch(r"([0-9.]+)([KMGTP]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"invalid number `{text}`: expected one with an optional K, M, G, T or P, such as 10G")
    return float(found[1]) * {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}[found[2]]


def page_length(text: str) -> float:
    """Parses a value of `ANNALS_PAGE`: its K and M are 1024 and 1024 * 1024."""
    found = re.fullmatch(r"(\d+)([KM]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"invalid length `{text}`: expected a number with an optional K or M, such as 64K")
    return float(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Computes what a merge on many nodes costs.")
    run, cluster = Run(), Cluster()
    add = parser.add_argument
    add("--ranks", type=amount, default=run.ranks, help="number of recordings, one for each rank")
    add("--bytes-per-rank", type=amount, default=run.bytes_per_rank, help="length of a recording")
    add("--bytes-per-event", type=float, default=run.bytes_per_event, help="bytes of a recording for an event")
    add("--trace-bytes-per-event", type=float, default=run.trace_bytes_per_event, help="bytes of the trace for an event")
    add("--page", type=page_length, default=run.page, help="ANNALS_PAGE")
    add("--nodes", type=int, default=cluster.nodes, help="number of nodes")
    add("--cores", type=int, default=cluster.cores, help="processors of a node, and most slices that it writes concurrently")
    add("--memory", type=amount, default=cluster.memory, help="memory of a node, bytes")
    add("--node-bandwidth", type=amount, default=cluster.node_bandwidth, help="of a node's network, bytes per second")
    add("--bandwidth", type=amount, default=cluster.bandwidth, help="of the file system, bytes per second")
    add("--metadata", type=amount, default=cluster.metadata, help="files that the file system opens per second")
    add("--latency-us", type=float, default=cluster.latency * 1e6, help="of a small read, microseconds")
    add("--slices", type=int, default=256, help=f"number of slices, at most {MOST_SLICES}")
    add("--slow-share", type=float, default=cluster.slow_share, help="share of the nodes that are slower")
    add("--slow-factor", type=float, default=cluster.slow_factor, help="how many times slower they are")
    add("--kill-hours", type=float, default=0.0, help="mean time until a node is killed; 0 means that none is")
    add("--seed", type=int, default=cluster.seed, help="of the random times at which nodes are killed")
    add("--update", metavar="PAGE", type=Path, help="write the tables of this page anew, and print nothing")
    given = parser.parse_args()
    if given.update:
        given.update.write_text(update(given.update.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if not 1 <= given.slices <= MOST_SLICES:
        parser.error(f"invalid number of slices {given.slices}: expected 1 to {MOST_SLICES}")
    run = Run(
        int(given.ranks), given.bytes_per_rank, given.bytes_per_event, given.trace_bytes_per_event, int(given.page)
    )
    cluster = Cluster(
        given.nodes, given.cores, given.memory, given.node_bandwidth, given.bandwidth, given.metadata, given.latency_us / 1e6,
        given.slices, given.slow_share, given.slow_factor, given.kill_hours * 3600.0, seed=given.seed,
    )  # fmt: skip
    recorded = f"{size(run.bytes)} of recordings, {number(run.events)} events, {number(run.chunks)} chunks"
    print(f"{recorded}; the trace has {size(run.trace_bytes)}\n")
    print(table_of_steps(run, cluster))


if __name__ == "__main__":
    main()
