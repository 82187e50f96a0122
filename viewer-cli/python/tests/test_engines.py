"""Datasets, read by engines that other tests do not need: Spark and Dask. With ANNALS_LONG=1 only: Spark needs Java and 400 MB."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python, trace_cli

import annals_trace

pytestmark = pytest.mark.skipif(not os.environ.get("ANNALS_LONG"), reason="with ANNALS_LONG=1 only")

RANKS = 6

RECORD = """
import sys, annals_trace
rank = int(sys.argv[2])
with annals_trace.Recorder(sys.argv[1]) as recorder:
    step, solve = recorder.region("step"), recorder.region(f"solve {rank % 2}")
    for _ in range(500 * (rank + 1)):
        with step:
            with solve:
                pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of ranks that call regions of different names."""
    directory = tmp_path_factory.mktemp("engines") / "run"
    for rank in range(RANKS):
        environment = {**os.environ, "ANNALS_RANK": str(rank), "ANNALS_RANKS": str(RANKS)}
        done = run_python(RECORD, directory, rank, env=environment)
        assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def dataset(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("dataset") / "tables"
    annals_trace.export(run, output, tables=["events", "calls"], groups=4)
    return output


@pytest.fixture(scope="module")
def calls(run: Path) -> dict[str, int]:
    """Calls by region, as the command counts them."""
    done = trace_cli("regions", run, "--json")
    assert done.returncode == 0, done.stderr
    counted = {row["region"]: row["calls"] for row in json.loads(done.stdout)["regions"]}
    assert counted["step"] == sum(500 * (rank + 1) for rank in range(RANKS))
    return counted


@pytest.fixture(scope="module")
def spark() -> Any:
    sql = pytest.importorskip("pyspark.sql")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    yield session
    session.stop()


def test_spark_counts_what_the_command_counts(spark: Any, dataset: Path, calls: dict[str, int]) -> None:
    table = spark.read.parquet(str(dataset / "calls"))
    assert {row["region"]: row["count"] for row in table.groupBy("region").count().collect()} == calls
    # An event for each enter and leave. Spark takes the columns of one file: they are the same in all.
    events = spark.read.parquet(str(dataset / "events"))
    counted = events.where("region is not null").groupBy("region").count().collect()
    assert {row["region"]: row["count"] for row in counted} == {name: 2 * count for name, count in calls.items()}


def test_spark_reads_only_the_ranks_that_are_asked_for(spark: Any, dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tables"
    shutil.copytree(dataset, copy)
    for rank in (1, 5):
        for file in (copy / "calls" / f"rank={rank}").iterdir():
            file.write_bytes(b"no Parquet")
    # Columns are those of the first file.
    schema = spark.read.parquet(str(dataset / "calls")).schema
    table = spark.read.schema(schema).parquet(str(copy / "calls"))
    assert table.where("rank = 3").count() == 2 * 500 * 4
    # A file that is opened is an error, which names it.
    with pytest.raises(Exception, match="rank=5"):
        table.where("rank = 5").collect()
    assert table.where("rank = 3").selectExpr("sum(inclusive_ns)").first()[0] > 0


def test_dask_counts_what_the_command_counts(dataset: Path, calls: dict[str, int]) -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    table = dataframe.read_parquet(dataset / "calls")
    assert table.groupby("region", observed=True).size().compute().to_dict() == calls
    third = dataframe.read_parquet(dataset / "calls", filters=[("rank", "==", 3)])
    assert third.npartitions == 1 and len(third) == 2 * 500 * 4
