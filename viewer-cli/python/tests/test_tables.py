"""Tables have what the commands say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pandas
import polars
import pyarrow
import pytest
from conftest import ROOT, answer

import annals_trace

TABLES = (
    "events calls regions messages collectives metrics samples losses locations wait_states critical_path efficiency"
).split()


@pytest.fixture(params=["demo", "mpi"])
def path(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_regions_are_those_of_the_command(path: Path) -> None:
    expected = answer("regions", path, "--by", "location")["regions"]
    found = annals_trace.open(path).regions().to_pandas()
    for column in found.columns:
        values = [None if pandas.isna(value) else value for value in found[column]]
        assert values == [row[column] for row in expected], column


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_lists_the_columns(mpi: Path, name: str) -> None:
    table = getattr(annals_trace.Trace, name)
    documented = set(re.findall(r"``(\w+)``", table.__doc__))
    columns = getattr(annals_trace.open(mpi), name)().column_names
    if name == "events":  # The others are those of elements, which follow from the trace.
        columns = columns[:5]
    assert set(columns) <= documented, set(columns) - documented


def test_calls_add_up_to_regions(path: Path) -> None:
    trace = annals_trace.open(path)
    calls = polars.DataFrame(trace.calls())
    # Rows without calls have leaves whose enters are lost.
    regions = polars.DataFrame(trace.regions()).filter(polars.col("calls") > 0)
    by = ["rank", "location", "region"]
    calls = calls.with_columns(polars.col("location", "region").cast(polars.String))
    sums = calls.group_by(by).agg(
        polars.len().cast(polars.UInt64).alias("calls"),
        polars.col("exclusive_ns").sum(),
        polars.col("inclusive_ns").filter(polars.col("is_outermost")).sum(),
    )
    joined = sums.join(regions, on=by, how="full")
    assert joined["calls"].to_list() == joined["calls_right"].to_list()
    assert joined["exclusive_ns"].to_list() == joined["exclusive_ns_right"].to_list()
    assert joined["inclusive_ns"].to_list() == joined["inclusive_ns_right"].to_list()


def test_messages_are_those_of_the_command(mpi: Path) -> None:
    trace = annals_trace.open(mpi)
    rows = polars.DataFrame(trace.messages())
    pairs = answer("messages", mpi)["pairs"]
    assert pairs
    for pair in pairs:
        own = rows.filter((polars.col("from_rank") == pair["from_rank"]) & (polars.col("to_rank") == pair["to_rank"]))
        assert own.height == pair["count"]
        assert own["bytes"].sum() == pair["bytes"]
        assert own["latency_ns"].max() == pair["max_latency_ns"]
        assert own["late_sender_wait_ns"].sum() == pair["late_sender_wait_ns"]
    assert rows.height == sum(pair["count"] for pair in pairs)
    matrix = trace.comm_matrix("count")
    assert matrix.shape == (4, 4)
    assert {(r, s): n for (r, s), n in numpy.ndenumerate(matrix) if n} == {
        (pair["from_rank"], pair["to_rank"]): pair["count"] for pair in pairs
    }


def test_collectives_are_those_of_the_command(mpi: Path) -> None:
    rows = annals_trace.open(mpi).collectives().to_pandas()
    for expected in answer("collectives", mpi)["collectives"]:
        own = rows[(rows.operation == expected["operation"]) & (rows.communicator == expected["communicator"])]
        assert len(own) == expected["count"]
        assert own.wait_ns.sum() == expected["wait_ns"]
        assert own.members.max() == expected["members"]


def test_waits_path_and_efficiency_are_those_of_why(mpi: Path) -> None:
    trace = annals_trace.open(mpi)
    why = answer("why", mpi)
    waits = trace.wait_states().to_pandas()
    by_pattern: dict[str, int] = {}
    for row in why["wait_states"]:
        by_pattern[row["pattern"]] = by_pattern.get(row["pattern"], 0) + row["wait_ns"]
    # A part of a late sender, and no wait.
    by_pattern.pop("wrong-order", None)
    found = waits.groupby("pattern", observed=True).wait_ns.sum()
    assert {name: ns for name, ns in found.items() if ns} == {name: ns for name, ns in by_pattern.items() if ns}
    efficiency = trace.efficiency().to_pandas().set_index("model")
    for expected in why["efficiencies"]:
        for name, value in expected.items():
            if name != "model":
                assert efficiency.loc[expected["model"], name] == pytest.approx(value, nan_ok=True)
    path = trace.critical_path().to_pandas()
    assert path.share.sum() == pytest.approx(1)
    whole = trace.wait_states(start=0).count()
    assert whole >= len(waits), "MPI_Init and MPI_Finalize count only if a window is given"


def test_losses_are_those_of_the_command(demo: Path) -> None:
    found = annals_trace.open(demo).losses().to_pandas()
    expected = answer("dropped", demo)["dropped"]
    assert expected, "rank 3 of the demo has lost events"
    key = ["rank", "location", "cause", "from_ns", "to_ns", "count"]
    assert sorted(found[key].itertuples(index=False, name=None)) == sorted(
        tuple(row[name] for name in key) for row in expected if row.get("cause")
    )
    regions = annals_trace.open(demo).regions().to_pandas()
    assert (regions[regions["rank"] == 3].uncertain_calls > 0).any()
    assert not (regions[regions["rank"] == 0].uncertain_calls > 0).any()


def test_metrics_are_those_of_the_command(demo: Path) -> None:
    found = annals_trace.open(demo).metrics().to_pandas()
    for expected in answer("metrics", demo)["metrics"]:
        own = found[
            (found.metric == expected["metric"])
            & (found["rank"] == expected["rank"])
            & (found.location == expected["location"])
        ]
        assert len(own) == expected["count"]
        assert own.value.min() == expected["min"]
        assert own.value.max() == expected["max"]
        assert own.value.mean() == pytest.approx(expected["mean"])


@pytest.mark.parametrize("by", ["function", "line", "module"])
@pytest.mark.parametrize("outside_mpi", [False, True])
def test_samples_are_those_of_the_command(by: str, outside_mpi: bool) -> None:
    path = ROOT / "tests" / "data" / "samples" / "heat.annals"
    options = ["--outside-mpi"] if outside_mpi else []
    for within in [None, "solve"]:
        within_options = ["--within", within] if within else []
        expected = answer("samples", path, "--by", f"{by},location", *options, *within_options)
        trace = annals_trace.open(path)
        found = trace.samples(by=by, within=within, outside_mpi=outside_mpi).to_pandas()
        assert len(found) == len(expected["rows"]) > 0
        assert found.self_ns.sum() == expected["time_ns"]
        for column in found.columns:
            values = [None if pandas.isna(value) else value for value in found[column]]
            assert values == [row[column] for row in expected["rows"]], column
    with pytest.raises(ValueError, match="function, line or module"):
        trace.samples(by="rank")
    with pytest.raises(ValueError, match="sovle"):
        trace.samples(within="sovle")


@pytest.mark.parametrize("table", TABLES)
def test_consumers_agree(path: Path, table: str) -> None:
    trace = annals_trace.open(path)
    made = getattr(trace, table)()
    arrow = pyarrow.table(made)
    assert arrow.column_names == made.column_names
    assert arrow.num_rows == made.count() == len(made.to_pandas())
    arrow.validate(full=True)
    # Of one stream, each batch may have a separate dictionary.
    plain = arrow.to_pandas(categories=None, strings_to_categorical=False)
    own = made.to_pandas()
    for column in arrow.column_names:
        left = [None if pandas.isna(value) else value for value in plain[column].astype(object)]
        right = [None if pandas.isna(value) else value for value in own[column].astype(object)]
        assert left == right, column
    numbers = made.to_numpy()
    assert list(numbers) == arrow.column_names
    assert polars.DataFrame(made).columns == arrow.column_names


def test_columns_windows_and_names_are_pushed_down(demo: Path) -> None:
    trace = annals_trace.open(demo)
    assert polars.DataFrame(trace.calls(columns=["region", "rank"])).columns == ["region", "rank"]
    whole = polars.DataFrame(trace.events()).with_columns(polars.col("location", "event").cast(polars.String))
    middle = trace.summary()["last_ns"] // 2
    for arguments, expected in [
        ({"start": middle}, polars.col("time_ns") >= middle),
        ({"end": middle}, polars.col("time_ns") < middle),
        ({"start": f"{middle}ns", "end": numpy.int64(middle + 1000)},
         (polars.col("time_ns") >= middle) & (polars.col("time_ns") < middle + 1000)),
        ({"ranks": 2}, polars.col("rank") == 2),
        ({"ranks": [0, 3]}, polars.col("rank").is_in([0, 3])),
        ({"ranks": "1-2"}, polars.col("rank").is_in([1, 2])),
        ({"name": "enter"}, polars.col("event") == "enter"),
        ({"locations": ["compressor*"]}, polars.col("location").str.starts_with("compressor")),
    ]:
        found = trace.events(columns=["time_ns"], **arguments)
        assert polars.DataFrame(found)["time_ns"].to_list() == whole.filter(expected)["time_ns"].to_list(), arguments
    work = polars.DataFrame(trace.calls(regions="work", columns=["region"]))
    assert set(work["region"].cast(polars.String)) == {"work"}


def test_the_answer_does_not_depend_on_the_number_of_inputs(demo: Path) -> None:
    recordings = sorted(demo.parent.glob("demo-*.annals"))
    assert len(recordings) == 4
    of_trace = annals_trace.open(demo).events(columns=["time_ns", "rank"]).to_numpy()
    of_recordings = annals_trace.open(*recordings).events(columns=["time_ns", "rank"]).to_numpy()
    assert (of_trace["time_ns"] == of_recordings["time_ns"]).all()
    assert (of_trace["rank"] == of_recordings["rank"]).all()


def test_summary(demo: Path) -> None:
    trace = annals_trace.open(demo)
    summary = trace.summary()
    assert summary["events"] == trace.events().count()
    assert summary["ranks"] == [0, 1, 2, 3]
    losses = trace.losses().to_pandas()
    assert summary["lost"] == losses[losses.kind != "suppressed"]["count"].sum() > 0
    assert summary["is_complete"], "nothing was skipped or truncated"
