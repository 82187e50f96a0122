"""Holds every export of a trace against what `trace-cli` prints of it, by other readers of the formats.

    check.py TRACE_CLI INPUT DIRECTORY [FILTER ...]
"""

import collections
import csv
import gzip
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

import duckdb
import polars
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

program, source, directory, *filters = sys.argv[1:]
csv.field_size_limit(1 << 30)


def cli(*arguments, codes=(0,)):
    done = subprocess.run([program, *arguments], capture_output=True)
    assert done.returncode in codes, (arguments, done.returncode, done.stderr.decode())
    return done.stdout


def asked(command, *more, codes=(0,)):
    return json.loads(cli(command, source, *filters, "--json", *more, codes=codes) or "null")


def export(name, *more):
    path = os.path.join(directory, name)
    cli("export", source, "-o", path, "--quiet", *filters, *more)
    assert not [name for name in os.listdir(directory) if name.endswith(".tmp")]
    return path


def same(ours, theirs, what):
    if ours != theirs:
        missing, more = [], []
        if isinstance(ours, list) and isinstance(theirs, list):
            missing = [row for row in theirs if row not in ours][:3]
            more = [row for row in ours if row not in theirs][:3]
            raise AssertionError(f"{what}: {len(ours)} and {len(theirs)}; missing {missing}; more {more}")
        raise AssertionError(f"{what}: {ours!r:.2000} is not {theirs!r:.2000}")


lines = [json.loads(line) for line in cli("print", source, *filters, "--json").splitlines()]
regions = asked("regions", "--by", "location")["regions"]
dropped = asked("dropped")
losses = [
    {**row, "kind": kind} for kind in ("dropped", "suppressed", "skipped") for row in dropped[kind]
]
messages = (asked("messages", codes=(0, 1)) or {"pairs": []})["pairs"]
metrics = (asked("metrics", codes=(0, 1)) or {"metrics": []})["metrics"]
has_regions = "--region" in filters
if has_regions:
    # As `print`: what is of no region is left out.
    metrics = []
whole = not any(word in filters for word in ("--from", "--to"))

FIXED = ["time_ns", "rank", "location", "source", "event"]


def flat(row):
    """A row of events as print has it: its elements apart."""
    fixed = [row.get(name) for name in FIXED]
    elements = {}
    for name, value in row.items():
        if name not in FIXED and value is not None:
            value = value.hex() if isinstance(value, bytes) else value
            value = None if isinstance(value, float) and value != value else value
            value = None if value in (float("inf"), float("-inf")) else value
            elements[name] = value
    return fixed, elements


def same_events(rows, what):
    rows = list(rows)
    same(len(rows), len(lines), what)
    for row, line in zip(rows, lines):
        fixed, elements = flat(row)
        assert fixed == [line[name] for name in FIXED], (what, row, line)
        wanted = list(line["elements"].values())
        found = list(elements.values())
        # JSON has no numbers for what is not finite: null, as where there is none.
        wanted = [value for value in wanted if value is not None]
        found = [value for value in found if value is not None]
        # A name that several types or columns have is another one in the table.
        key = lambda value: (str(type(value)), str(value))
        assert sorted(map(key, wanted)) == sorted(map(key, found)), (what, row, line)
        for name, value in line["elements"].items():
            if name in elements:
                assert elements[name] == value, (what, name, row, line)


def same_calls(rows, what):
    """Sums of calls are the statistics of regions."""
    begin = 0 if whole else None
    sums = collections.defaultdict(lambda: [0, 0, 0])
    known = {row["call"]: row for row in rows}
    same(len(known), len(rows), f"{what}: numbers of calls")
    for row in rows:
        sum = sums[row["rank"], row["location"], row["region"]]
        sum[0] += 1 if whole else row["begin_ns"] >= window[0]
        sum[1] += row["inclusive_ns"] if row["is_outermost"] else 0
        sum[2] += row["exclusive_ns"]
        assert row["ended"] in ("left", "unleft", "open")
        if row["parent"] is not None and not has_regions:
            parent = known[row["parent"]]
            assert parent["depth"] == row["depth"] - 1
            assert parent["begin_ns"] <= row["begin_ns"] and row["end_ns"] <= parent["end_ns"]
    wanted = {
        (row["rank"], row["location"], row["region"]): [row["calls"], row["inclusive_ns"], row["exclusive_ns"]]
        for row in regions
    }
    nothing = [0, 0, 0]
    same(
        {key: sum for key, sum in sums.items() if sum != nothing},
        {key: sum for key, sum in wanted.items() if sum != nothing},
        what,
    )


def loss_key(row):
    event = row.get("event", row.get("event_type"))
    names = ("rank", "location", "source", "count", "is_lower_bound", "kind", "cause", "from_ns", "to_ns")
    return json.dumps([event, *(row.get(name) for name in names)])


def same_drops(rows, what):
    same(sorted(map(loss_key, rows)), sorted(map(loss_key, losses)), what)


def same_messages(rows, what):
    pairs = collections.defaultdict(list)
    for row in rows:
        assert row["latency_ns"] == row["receive_ns"] - row["send_ns"]
        pairs[row["from_rank"], row["to_rank"]].append(row)
    wanted = {(row["from_rank"], row["to_rank"]): row for row in messages}
    same(set(pairs), set(wanted), what)
    for pair, rows in pairs.items():
        same(len(rows), wanted[pair]["count"], what)
        same(sum(row["bytes"] or 0 for row in rows), wanted[pair]["bytes"], what)
        latencies = [row["latency_ns"] for row in rows]
        same(min(latencies), wanted[pair]["min_latency_ns"], what)
        same(max(latencies), wanted[pair]["max_latency_ns"], what)


def same_metrics(rows, what):
    series = collections.defaultdict(list)
    for row in rows:
        value = row["value"]
        if value is not None and value - value == 0:
            series[row["metric"], row["rank"], row["location"]].append(value)
    wanted = collections.defaultdict(lambda: [0, float("inf"), float("-inf")])
    for row in metrics:
        found = wanted[row["metric"], row["rank"], row["location"]]
        found[:] = [found[0] + row["count"], min(found[1], row["min"]), max(found[2], row["max"])]
    same(
        {key: [len(values), min(values), max(values)] for key, values in series.items()},
        dict(wanted),
        what,
    )


def same_regions(rows, what):
    def key(row, name):
        return json.dumps([row[name], *(row[n] for n in ("rank", "location", "calls", "inclusive_ns", "exclusive_ns", "max_ns", "p95_ns", "uncertain_calls", "time_is_uncertain"))])

    same(sorted(key(row, "region") for row in rows), sorted(key(row, "region") for row in regions), what)


SAME = {
    "events": same_events,
    "calls": same_calls,
    "drops": same_drops,
    "messages": same_messages,
    "metrics": same_metrics,
    "regions": same_regions,
}
ALL = ["--table", ",".join(SAME)]
window = [None]
if "--from" in filters:
    unit = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}
    number, name = re.fullmatch(r"([0-9.]+)([a-z]+)", filters[filters.index("--from") + 1]).groups()
    window = [round(float(number) * unit[name])]


def sorted_by(rows):
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def check_tables():
    path = export("tables-parquet", "--format", "parquet", *ALL)
    for table, check in SAME.items():
        file = os.path.join(path, f"{table}.parquet")
        rows = pyarrow.parquet.read_table(file).to_pylist()
        check(rows, f"parquet {table}, pyarrow")
        found = duckdb.sql(f"select * from '{file}'")
        names = found.columns
        check([dict(zip(names, row)) for row in found.fetchall()], f"parquet {table}, duckdb")
        check(polars.read_parquet(file).to_dicts(), f"parquet {table}, polars")
        check_groups(file, table)
    path = export("tables-arrow", "--format", "arrow", *ALL)
    for table, check in SAME.items():
        file = os.path.join(path, f"{table}.arrow")
        check(pyarrow.ipc.open_file(file).read_all().to_pylist(), f"arrow {table}, pyarrow")
        check(polars.read_ipc(file).to_dicts(), f"arrow {table}, polars")
    path = export("tables-jsonl", "--format", "jsonl", *ALL)
    for table, check in SAME.items():
        with open(os.path.join(path, f"{table}.jsonl"), encoding="utf-8") as file:
            rows = [collections.defaultdict(lambda: None, json.loads(line)) for line in file]
        check(rows, f"jsonl {table}")
    path = export("tables-csv", "--format", "csv", *ALL)
    types = {
        table: pyarrow.parquet.read_schema(os.path.join(directory, "tables-parquet", f"{table}.parquet"))
        for table in SAME
    }
    for table, check in SAME.items():
        file = os.path.join(path, f"{table}.csv")
        check(list(read_csv(file, types[table])), f"csv {table}")
    # One file, by its name alone; compressed as well.
    for name in ("one.csv", "one.csv.gz"):
        file = export(name)
        same_events(read_csv(file, types["events"]), name)
    same_events(pyarrow.parquet.read_table(export("one.parquet")).to_pylist(), "one.parquet")
    same_drops(pyarrow.parquet.read_table(export("d.parquet", "--table", "drops")).to_pylist(), "d.parquet")


def read_csv(path, schema):
    """Cells by the types of the same table in Parquet; nothing between commas is null."""
    opened = gzip.open if path.endswith(".gz") else open
    text = opened(path, "rt", encoding="utf-8", newline="").read()
    # Python's reader does not distinguish `""` from an empty field.
    mark = "\0empty\0"
    text = re.sub(r'(?<=,)""(?=[,\n])|(?<=\n)""(?=[,\n])', mark, text)
    rows = csv.reader(text.splitlines(keepends=True), strict=True)
    names = next(rows)
    assert names == schema.names, (names, schema.names)
    for row in rows:
        assert len(row) == len(names), row
        found = {}
        for name, cell in zip(names, row):
            kind = schema.field(name).type
            if cell == "":
                found[name] = None
            elif pyarrow.types.is_integer(kind):
                found[name] = int(cell)
            elif pyarrow.types.is_floating(kind):
                found[name] = float(cell)
            elif pyarrow.types.is_boolean(kind):
                found[name] = {"true": True, "false": False}[cell]
            else:
                found[name] = "" if cell == mark else cell
        yield found


TIMES = {"events": "time_ns", "calls": "end_ns", "messages": "receive_ns", "metrics": "time_ns", "drops": "to_ns"}


def check_groups(file, table):
    """Groups of rows follow each other in time, and say where they are."""
    if table not in TIMES:
        return
    found = pyarrow.parquet.ParquetFile(file)
    at = found.schema_arrow.names.index(TIMES[table])
    last = None
    for number in range(found.metadata.num_row_groups):
        group = found.metadata.row_group(number)
        statistics = group.column(at).statistics
        assert statistics is not None and statistics.has_min_max, (table, number)
        assert group.num_rows < 1 << 19
        if table == "events":
            assert last is None or statistics.min >= last, (table, number)
        last = statistics.max


def check_partitions():
    path = export("by-rank", "--format", "parquet", "--partition", "rank", *ALL)
    span = max((line["time_ns"] for line in lines), default=0)
    each = max(span // 7, 1)
    by_time = export("by-time", "--format", "parquet", "--partition", f"time={each}ns", *ALL)
    order = ["time_ns", "rank", "location", "source", "event"]
    for table, check in SAME.items():
        for root, names in ((path, "rank"), (by_time, "window_ns")):
            if root == by_time and table == "regions":
                continue
            below = os.path.join(root, table)
            if not os.listdir(below):
                check([], f"{table} by {names}")
                continue
            hive = pyarrow.dataset.partitioning(pyarrow.schema([(names, pyarrow.int64())]), flavor="hive")
            found = pyarrow.dataset.dataset(below, format="parquet", partitioning=hive).to_table().to_pylist()
            globbed = duckdb.sql(f"select * from read_parquet('{below}/**/*.parquet', hive_partitioning=true)")
            from_duckdb = [dict(zip(globbed.columns, row)) for row in globbed.fetchall()]
            from_polars = polars.scan_parquet(f"{below}/**/*.parquet", hive_partitioning=True).collect().to_dicts()
            for rows, reader in ((found, "pyarrow"), (from_duckdb, "duckdb"), (from_polars, "polars")):
                what = f"{table} by {names}, {reader}"
                for row in rows:
                    key = row.pop(names) if names == "window_ns" else None
                    if key is not None:
                        assert key <= row[TIMES[table]] < key + each, (what, row)
                if table == "events":
                    same(len(rows), len(lines), what)
                    key = lambda row: json.dumps([row[name] for name in order])
                    same(sorted(map(key, rows)), sorted(map(key, lines)), what)
                else:
                    check(rows, what)
    done = subprocess.run(
        [program, "export", source, "-o", path, "--format", "parquet", "--partition", "rank"], capture_output=True
    )
    # A window without events may have losses.
    if any(os.listdir(os.path.join(path, table)) for table in os.listdir(path)):
        assert done.returncode == 1 and b"is there already" in done.stderr, done
    else:
        # Nothing is in the way of nothing.
        assert done.returncode == 0, done


def slices_of(events):
    """Slices by track: (track, name) -> [count, sum of durations]; instants in order; from begin and end events."""
    open_slices = collections.defaultdict(list)
    sums = collections.defaultdict(lambda: [0, 0])
    for kind, track, name, time in events:
        if kind == "B":
            open_slices[track].append((name, time))
        else:
            name, begin = open_slices[track].pop()
            depth = [name for name, _ in open_slices[track]]
            found = sums[(*track, name)]
            found[0] += 1
            # Recursion counts once.
            found[1] += 0 if name in depth else time - begin
    assert not any(open_slices.values()), open_slices
    return sums


def check_slices(sums, what):
    wanted = {
        (f"rank {row['rank']}", row["location"], row["region"]): [row["calls"], row["inclusive_ns"]]
        for row in regions
        if row["calls"] or row["inclusive_ns"]
    }
    found = {key: sum if whole else [wanted.get(key, [0])[0], sum[1]] for key, sum in sums.items() if whole or sum[1]}
    wanted = {key: sum for key, sum in wanted.items() if whole or sum[1]}
    if "--event" in filters and not any(line["event"] in MOVES for line in lines):
        wanted = {}
    same(found, wanted, what)


def is_point(line):
    return line["event"] not in MOVES and line["event"] not in METRICS


events = json.loads(cli("events", source, "--json"))
rows = events["event_types"]
MOVES = {row["event"] for row in rows if row["role"] in ("enter", "leave")}
METRICS = {row["event"] for row in rows if row["role"] == "metric"}


def check_perfetto():
    trace = protos.Trace()
    with open(export("run.pftrace"), "rb") as file:
        trace.ParseFromString(file.read())
    processes, tracks, names, annotations = {}, {}, {}, {}
    begins, points, counters, lost, flows = [], [], collections.Counter(), [], collections.Counter()
    kinds = protos.TrackEvent.Type
    for packet in trace.packet:
        if packet.HasField("interned_data"):
            names = {entry.iid: entry.name for entry in packet.interned_data.event_names}
            annotations = {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                processes[track.process.pid] = track.process.process_name
                tracks[track.uuid] = (track.process.process_name, None, None)
            elif track.HasField("thread"):
                tracks[track.uuid] = (processes[track.thread.pid], track.thread.thread_name, None)
            else:
                tracks[track.uuid] = (*tracks[track.parent_uuid][:2], track.name)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        name = names[event.name_iid] if event.name_iid else event.name
        rank, location, below = tracks[event.track_uuid]
        arguments = {}
        for annotation in event.debug_annotations:
            field = annotation.WhichOneof("value")
            key = annotations.get(annotation.name_iid) or annotation.name
            arguments[key] = getattr(annotation, field) if field else None
        flows.update(event.flow_ids)
        if event.type == kinds.TYPE_SLICE_BEGIN:
            begins.append(("B", (rank, location), name, packet.timestamp))
        elif event.type == kinds.TYPE_SLICE_END:
            begins.append(("E", (rank, location), None, packet.timestamp))
        elif event.type == kinds.TYPE_COUNTER:
            counters[rank, location, below] += 1
        elif "loss" in event.categories:
            assert packet.previous_packet_dropped
            lost.append(
                {
                    "rank": int(rank.split()[1]),
                    "location": location,
                    "source": below,
                    "event": arguments.get("event"),
                    **{key: arguments[key] for key in ("count", "is_lower_bound", "kind", "cause", "from_ns", "to_ns")},
                }
            )
        elif not name.startswith("left without enter") and name != "message received":
            points.append([packet.timestamp, rank, location, below, name, arguments])
    check_slices(slices_of(begins), "perfetto slices")
    wanted = [
        [max(line["time_ns"], 0), f"rank {line['rank']}", line["location"], line["source"], line["event"]]
        for line in lines
        if is_point(line)
    ]
    same([point[:5] for point in points], wanted, "perfetto points")
    elements = [line["elements"] for line in lines if is_point(line)]
    for (*_, found), elements in zip(points, elements):
        for name, value in elements.items():
            if value is not None:
                assert found[name] == value, (found, name, value)
    same_drops(lost, "perfetto losses")
    same(sum(counters.values()), sum(line["event"] in METRICS for line in lines), "perfetto counters")
    if not filters:
        same(sum(count == 2 for count in flows.values()), sum(row["count"] for row in messages), "perfetto flows")
    assert not any(count > 2 for count in flows.values())


def check_chrome():
    with open(export("run.json"), encoding="utf-8") as file:
        plain = json.load(file)
    with gzip.open(export("run.json.gz"), "rt", encoding="utf-8") as file:
        assert json.load(file) == plain
    processes, threads, begins, points, lost = {}, {}, [], [], []
    flows = collections.Counter()
    counters = 0
    for event in plain["traceEvents"]:
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                threads[place] = (processes[event["pid"]], event["args"]["name"])
            continue
        time = round(event["ts"] * 1000)
        if event["ph"] in "BE":
            begins.append((event["ph"], threads[place], event["name"], time))
        elif event["ph"] == "C":
            counters += 1
        elif event["ph"] in "sf":
            flows[event["ph"]] += 1
        elif event.get("cat") == "loss":
            lost.append({"rank": int(threads[place][0].split()[1]), **event["args"]})
        elif not event["name"].startswith("left without enter"):
            points.append([time, *threads[place], event["name"], event.get("args", {})])
    check_slices(slices_of(begins), "chrome slices")
    wanted = [
        [line["time_ns"], f"rank {line['rank']}", line["location"] or line["source"], line["event"], line["elements"]]
        for line in lines
        if is_point(line)
    ]
    same(points, wanted, "chrome points")
    same_drops(lost, "chrome losses")
    same(counters, sum(line["event"] in METRICS for line in lines), "chrome counters")
    count = sum(row["count"] for row in messages)
    same((flows["s"], flows["f"]), (count, count), "chrome flows")
    totals = dropped["totals"]
    same(plain["otherData"]["dropped"], totals["dropped"], "chrome totals")


def safe(name):
    return re.sub(
        r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
        lambda c: {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c[0], "\\u{%x}" % ord(c[0])),
        name,
    )


def check_stacks():
    wanted = collections.Counter()
    by_rank = collections.Counter()
    for row in regions:
        name = safe(row["region"]).replace(";", ":") or "-"
        wanted[name] += row["exclusive_ns"]
        by_rank[f"rank {row['rank']}", name] += row["exclusive_ns"]
    found, found_by_rank = collections.Counter(), collections.Counter()
    for name, more in (("run.folded", []), ("by-rank.folded", ["--by", "rank"])):
        with open(export(name, *more), encoding="utf-8", newline="\n") as file:
            for line in file.read().split("\n")[:-1]:
                stack, _, ns = line.rpartition(" ")
                frames = stack.split(";")
                if more:
                    found_by_rank[frames[0], frames[-1]] += int(ns)
                else:
                    found[frames[-1]] += int(ns)
    same(dict(found), dict(+wanted), "folded")
    same(dict(found_by_rank), dict(+by_rank), "folded by rank")
    tree = xml.etree.ElementTree.parse(export("run.svg"))
    text = " ".join(tree.getroot().itertext())
    if dropped["totals"]["dropped"]:
        assert f"{dropped['totals']['dropped']} of" in text, "losses are told"
    if wanted:
        assert "ns" in text


def check_graphs():
    calls = collections.Counter()
    for row in regions:
        calls[safe(row["region"])] += row["calls"]
    with open(export("run.dot"), encoding="utf-8") as file:
        text = file.read()
    found = collections.Counter()
    for label, count in re.findall(r'^    r\d+ \[label="((?:[^"\\]|\\.)*?)\\n~?(\d+) calls', text, re.M):
        found[re.sub(r"\\(.)", r"\1", label)] += int(count)
    same(dict(+found), dict(+calls), "dot")
    try:
        subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True)
    except FileNotFoundError:
        print("NOT TESTED: Graphviz is not installed")
    with open(export("run.mmd"), encoding="utf-8") as file:
        text = file.read().splitlines()
    assert text[0] == "flowchart TD"
    found = 0
    for line in text[1:]:
        match = re.fullmatch(r'    r\d+\["[^"]*<br/>~?(\d+) calls, [^"]*"\]|    r\d+ -->\|"~?\d+x"\| r\d+|%% .*', line)
        assert match, line
        found += int(match[1] or 0)
    same(found, sum(calls.values()), "mermaid")


os.makedirs(directory, exist_ok=True)
check_tables()
check_partitions()
check_perfetto()
check_chrome()
check_stacks()
check_graphs()
print(f"{len(lines)} events, {len(regions)} regions, {len(losses)} losses, {len(messages)} pairs, {len(metrics)} metrics")
