"""Names of Pipit: values as Pipit's own tests have them (github.com/hpcgroup/pipit, pipit/tests), of its two OTF2 archives."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import annals_trace

MAIN = "int main(int, char**)"


@pytest.fixture(params=["pipit-ping-pong-otf2", "pipit-ping-pong-otf2-papi"])
def ping_pong(request: pytest.FixtureRequest, archives: Path) -> annals_trace.Trace:
    return annals_trace.open(archives / request.param / "traces.otf2")


@pytest.fixture
def timed(archives: Path) -> annals_trace.Trace:
    return annals_trace.open(archives / "pipit-ping-pong-otf2" / "traces.otf2")


def test_comm_matrix(timed: annals_trace.Trace) -> None:
    sizes, counts = timed.comm_matrix(), timed.comm_matrix("count")
    assert sizes.shape == counts.shape == (2, 2)
    assert sizes[0][0] == sizes[1][1] == counts[0][0] == counts[1][1] == 0
    assert sizes[0][1] == sizes[1][0] == 4177920
    assert counts[0][1] == counts[1][0] == 8


def test_comm_over_time(timed: annals_trace.Trace) -> None:
    histogram, edges = timed.comm_over_time(output="size", message_type="send", bins=5)
    assert len(edges) == 6
    assert all(histogram[0:3] == 0)
    assert histogram[4] == 4177920 * 2
    histogram, edges = timed.comm_over_time(output="count", message_type="receive", bins=5)
    assert len(edges) == 6
    assert all(histogram[0:3] == 0)
    assert histogram[4] == 8 * 2


def test_comm_by_process(timed: annals_trace.Trace) -> None:
    sizes, counts = timed.comm_by_process(), timed.comm_by_process(output="count")
    for rank in (0, 1):
        assert sizes.loc[rank]["Sent"] == sizes.loc[rank]["Received"] == 4177920
        assert counts.loc[rank]["Sent"] == counts.loc[rank]["Received"] == 8


def test_message_histogram(timed: annals_trace.Trace) -> None:
    counts, edges = timed.message_histogram(bins=20)
    assert counts.sum() == 16
    assert len(edges) == 21
    sizes = timed.messages(columns=["bytes"]).to_numpy()["bytes"]
    assert (counts == numpy.histogram(sizes, bins=20)[0]).all()


def test_events(ping_pong: annals_trace.Trace) -> None:
    names = ping_pong.calls(columns=["region"]).to_pandas().region.value_counts()
    # 8 sends and 8 receives of each of the two ranks, as in the program.
    assert names["MPI_Send"] == 16
    assert names["MPI_Recv"] == 16
    assert len(ping_pong.summary()["ranks"]) == 2


def test_time_profile(timed: annals_trace.Trace) -> None:
    profile = timed.time_profile(num_bins=62)
    assert len(profile) == 62
    size = profile["bin_end"] - profile["bin_start"]
    # Our borders are whole nanoseconds.
    assert numpy.isclose(size, size.mean(), atol=2).all()
    times = profile.drop(columns=["bin_start", "bin_end"])
    assert numpy.isclose(times.sum(axis=1), size * 2).all()
    exclusive = timed.flat_profile("time.exc", per_process=True).groupby("Name").sum()["time.exc"]
    for name in times.columns.drop("idle_time"):
        assert times[name].sum() == pytest.approx(exclusive[name])
    normal = timed.time_profile(num_bins=62, normalized=True)
    # Values of Vampir's function summary, in Pipit's test.
    expected = {
        0: {MAIN: 0.00299437, "MPI_Init": 0.93999815, "MPI_Send": 0, "MPI_Recv": 0, "MPI_Finalize": 0},
        60: {
            MAIN: 0.39464799,
            "MPI_Init": 0.14843661,
            "MPI_Send": 0.24594134,
            "MPI_Recv": 0.21017099,
            "MPI_Comm_size": 0.00046047,
            "MPI_Comm_rank": 0.00034261,
        },
        61: {
            MAIN: 0.43560727,
            "MPI_Init": 0,
            "MPI_Send": 0.29640222,
            "MPI_Recv": 0.24300865,
            "MPI_Finalize": 0.01614835,
        },
    }
    for row, values in expected.items():
        for name, value in values.items():
            assert normal.loc[row][name] == pytest.approx(value, abs=2e-6), (row, name)
    assert numpy.isclose(normal.loc[1:59]["MPI_Init"], 1.0).all()


def test_flat_profile_and_load_imbalance(ping_pong: annals_trace.Trace) -> None:
    by_rank = ping_pong.flat_profile(["time.exc", "time.inc", "count"], per_process=True)
    mean = ping_pong.flat_profile(["time.exc", "time.inc"])
    assert by_rank.loc["MPI_Send"]["count"].tolist() == [8, 8]
    assert mean.loc["MPI_Send"]["time.exc"] == by_rank.loc["MPI_Send"]["time.exc"].mean()
    whole = by_rank.loc[MAIN]["time.inc"]
    parts = by_rank["time.exc"].groupby("Process").sum()
    assert (parts == whole).all(), "all regions lie in main"
    imbalance = ping_pong.load_imbalance("time.exc", num_processes=2)
    sends = by_rank.loc["MPI_Send"]["time.exc"]
    assert imbalance.loc["MPI_Send"]["time.exc.imbalance"] == pytest.approx(sends.max() / sends.mean())
    assert imbalance.loc["MPI_Send"]["Top processes"][0] == sends.idxmax()


def test_idle_time(ping_pong: annals_trace.Trace) -> None:
    idle = ping_pong.idle_time(mpi_events=True)
    receives = ping_pong.flat_profile("time.inc", per_process=True).loc["MPI_Recv"]["time.inc"]
    assert idle["Process"].tolist() == [0, 1]
    assert idle["Idle Time"].tolist() == receives.tolist()
    assert ping_pong.idle_time(["no such region"])["Idle Time"].tolist() == [0, 0]
