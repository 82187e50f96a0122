"""What `trace-cli` answers about the recordings of a job, against what the job's ranks noted themselves.

    python3 check.py CASE DIRECTORY

DIRECTORY has the recordings (`run`), the ranks' notes (`truth-RANK`: see ending.c), and in `ended` the time at which the
launcher returned, seconds of CLOCK_MONOTONIC.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys

# A busy machine takes its time from a signal to the end of a process, and from an event to a note about it.
TOLERANCE_S = 0.25

case, directory = sys.argv[1], pathlib.Path(sys.argv[2])
how, ranks = case.split("-")[0], {"limit": 2, "hang": 3, "crash": 3, "hybrid": 4, "plain": 4}[case.split("-")[0]]
wrong = []


def ask(command, *arguments):
    asked = ["trace-cli", command, str(directory / "run"), *arguments]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        wrong.append(f"{' '.join(asked)} ends with {done.returncode}: {done.stderr}")
    return done.stdout


def check(holds, what):
    if not holds:
        wrong.append(what)


def first(text):
    return text.split("\n", 1)[0]


info = json.loads(ask("info", "--json"))
said = {command: first(ask(command)) for command in ("info", "why", "regions")}
why = ask("why")
page = directory / "report.html"
said["report"] = first(ask("report", "-o", str(page)))
for command, sentence in said.items():
    print(f"{case:14} {command:8} {sentence}")

check(info["ranks"] == ranks, f"{info['ranks']} ranks")
check(info["helpers"] == (4 if how == "hybrid" else 0), f"{info['helpers']} helpers")
check(info["complete"], "not complete")
check(said["info"].endswith("nothing was lost."), said["info"])
check(said["report"] == said["why"], "the report begins with another sentence than `why`")
check(page.exists(), "no report")

rows = json.loads(ask("regions", "--by", "rank", "--json"))


def row(name, rank):
    found = [r for r in rows["regions"] if r["region"] == name and r["rank"] == rank]
    check(len(found) == 1, f"{name} of rank {rank}: {len(found)} rows")
    return found[0] if found else None


def check_time(row, field, least_s, most_s):
    """The answer is an interval, and must meet the one that the truth is in; without `~` it is a number."""
    from_s = row[f"{field}_ns"] / 1e9
    to_s = from_s + row[f"{field}_more_ns"] / 1e9
    what = f"{row['region']} of rank {row['rank']}: {field} {from_s:.3f} to {to_s:.3f} s, truly {least_s:.3f} to {most_s:.3f} s"
    check(from_s <= most_s + TOLERANCE_S and to_s >= least_s - TOLERANCE_S, what)
    return from_s


if how in ("limit", "hang", "crash"):
    truth = [struct.unpack("ddd", (directory / f"truth-{rank}").read_bytes()) for rank in range(ranks)]
    ended_s = float((directory / "ended").read_text())
    last_s = max(alive for (_, _, alive) in truth)
    # From the first rank's start after MPI_Init, which takes seconds on a busy machine at most, to the last rank's end.
    run_s = (info["end_ns"] - info["start_ns"]) / 1e9
    least_s = last_s - min(start for (start, _, _) in truth)
    check(least_s - TOLERANCE_S <= run_s <= least_s + 8, f"the run took {run_s:.3f} s, truly at least {least_s:.3f} s")
    of_one = {"limit": "hot", "hang": "forgets", "crash": "crashing"}[how]
    sums = {}
    for rank, (_, entered_s, alive_s) in enumerate(truth):
        computes = how == "limit" or rank == 1
        if computes:
            names, least_s, most_s = [of_one], alive_s - entered_s, alive_s - entered_s
        else:
            # In the barrier until it was killed with the others, at the latest when the launcher returned.
            names, least_s, most_s = ["waits", "MPI_Barrier"], truth[1][2] - entered_s, ended_s - entered_s
        for name in names:
            found = row(name, rank)
            if found is None:
                continue
            check(found["open_calls"] == 1, f"{name} of rank {rank}: {found['open_calls']} open calls")
            check(found["time_is_uncertain"], f"{name} of rank {rank} is exact")
            spent_s = check_time(found, "inclusive", least_s, most_s)
            sums[name] = sums.get(name, 0) + spent_s
        prepare = row("prepare", rank)
        if prepare is not None:
            check(not prepare["time_is_uncertain"], "`prepare` is uncertain")
            check(abs(prepare["inclusive_ns"] / 1e9 - 0.3) < TOLERANCE_S, f"prepare: {prepare['inclusive_ns']} ns")
        outside = [o for o in rows["outside"] if o["rank"] == rank]
        outside_s = sum(o["time_ns"] for o in outside) / 1e9
        check(outside_s < 2, f"{outside_s:.3f} s of rank {rank} are outside of all regions")
    # The function that took most time, with its time as it is printed.
    sums.pop("waits", None)
    most = max(sums, key=sums.get)
    sentence = re.match(r"(\S+) took most time itself: (about )?([0-9.]+) (m?s)\b", said["regions"])
    check(sentence, said["regions"])
    if sentence:
        name, about, number, unit = sentence.groups()
        check(name == most or abs(sums.get(name, 0) - sums[most]) < 0.1 or how == "crash", said["regions"])
        check(about or name == "prepare", f"an exact number: {said['regions']}")
    uncertain = re.search(r"up to ([0-9.]+) % of it is uncertain", why)
    if how == "limit":
        check("No rank makes others wait for more than 1 % of the run." in why, why)
    else:
        # Ranks 0 and 2 wait for rank 1, which no answer may deny.
        waited_s = sum(max(0, truth[1][2] - truth[rank][1]) for rank in (0, 2))
        share = 100 * waited_s / (ranks * run_s)
        check(uncertain and float(uncertain[1]) >= share - 3, f"{share:.1f} % of the run is waiting: {why}")
    waited = "Ranks 0 and 2 waited for it in MPI_Barrier, their 2nd collective on MPI_COMM_WORLD"
    if how == "crash":
        check(re.match("Rank 1 was killed by SIG[A-Z]+ in crashing at ", said["why"]), said["why"])
        check(waited in said["why"], said["why"])
    if how == "hang":
        check(re.match("Rank 1 was outside of MPI, in forgets, ", said["why"]), said["why"])
        check(waited in said["why"], said["why"])
        stuck = subprocess.run(["trace-cli", "stuck", str(directory / "run")], capture_output=True, text=True, check=False).stdout
        check(first(stuck) == said["why"], f"stuck: {first(stuck)}")
else:
    late = "Thread OMP 1 of rank 2 enters !$omp implicit barrier @ends_well.c:27" if how == "hybrid" else "Rank 2 enters MPI_Barrier"
    check(re.match(re.escape(late) + r" [0-9.]+ ms late in ", said["why"]), said["why"])
    barriers = [r["calls"] for r in rows["regions"] if r["region"] == "MPI_Barrier"]
    check(barriers == [11] * ranks, f"calls of MPI_Barrier: {barriers}")
    if how == "hybrid":
        works = sum(r["calls"] for r in rows["regions"] if r["region"] == "work")
        check(works == 2 * 10 * ranks, f"{works} calls of work")
    check("work" in said["why"], "why does not name the function that takes the time")

for what in wrong:
    print(f"{case}: WRONG: {what}", file=sys.stderr)
sys.exit(1 if wrong else 0)
