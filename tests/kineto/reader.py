"""Reads traces of PyTorch's profiler with `json` and exact decimals, and nothing of Annals.

    reader.py FILE...                   counts and sums of slices by rank and name, as JSON
    reader.py --pftrace FILE            the same of a Perfetto trace, by the classes of the package `perfetto`
"""

import collections
import decimal
import gzip
import json
import sys


def nanoseconds(microseconds):
    return int(decimal.Decimal(microseconds) * 1000)


def events(path):
    opener = gzip.open if open(path, "rb").read(2) == b"\x1f\x8b" else open
    with opener(path, "rt") as file:
        return json.load(file, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def of_json(paths):
    slices = collections.defaultdict(lambda: [0, 0])
    launches = 0
    for path in paths:
        trace = events(path)
        rank = int(trace["distributedInfo"]["rank"])
        launched, kernels = set(), set()
        for event in trace["traceEvents"]:
            if event.get("ph") != "X" or event.get("cat") == "Trace":
                continue
            of = slices[f"{rank}\t{event['name']}"]
            of[0] += 1
            of[1] += nanoseconds(event["dur"])
            correlation = event.get("args", {}).get("correlation")
            if correlation:
                is_call = event["cat"].endswith(("_runtime", "_driver"))
                (launched if is_call else kernels).add(correlation)
        launches += len(launched & kernels)
    return {"slices": slices, "flows": launches}


def of_perfetto(path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    names, processes, parents, stacks = {}, {}, {}, collections.defaultdict(list)
    slices = collections.defaultdict(lambda: [0, 0])
    ends = collections.Counter()

    def process_of(track):
        while track not in processes:
            track = parents[track]
        return processes[track]

    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        for name in packet.interned_data.event_names:
            names[sequence, name.iid] = name.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            parents[track.uuid] = track.parent_uuid
            if track.HasField("process"):
                processes[track.uuid] = track.process.process_name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        ends.update([*event.flow_ids, *event.terminating_flow_ids])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            name = event.name or names.get((sequence, event.name_iid), "")
            stacks[event.track_uuid].append((name, packet.timestamp))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, start = stacks[event.track_uuid].pop()
            of = slices[f"{process_of(event.track_uuid)}\t{name}"]
            of[0] += 1
            of[1] += packet.timestamp - start
    assert not any(stacks.values()), "every slice ends"
    assert all(count == 2 for count in ends.values()), "a flow has two ends"
    return {"slices": slices, "flows": len(ends)}


if __name__ == "__main__":
    if sys.argv[1] == "--pftrace":
        found = of_perfetto(sys.argv[2])
    else:
        found = of_json(sys.argv[1:])
    json.dump(found, sys.stdout)
