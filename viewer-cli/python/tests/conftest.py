"""Traces that the tests read: recorded by the package's own programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import annals_trace

ROOT = Path(__file__).resolve().parents[3]
#: MPICH of the same environment as mpi4py.
MPIRUN = Path(sys.prefix) / "bin" / "mpirun"


def trace_cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [annals_trace.executable(), *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def answer(*arguments: object) -> dict:
    """Returns what a command says as JSON."""
    done = trace_cli(*arguments, "--json")
    # 3: finished, with loss.
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of four ranks, one of which lost events."""
    directory = tmp_path_factory.mktemp("demo") / "demo"
    done = trace_cli("demo", "--output", directory)
    assert done.returncode == 0, done.stderr
    return directory / "run.annals"


@pytest.fixture(scope="session")
def mpi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of an MPI program of four ranks."""
    directory = tmp_path_factory.mktemp("mpi")
    program = directory / "ring.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "rank, size = world.rank, world.size\n"
        "data = bytearray(1000 * (rank + 1))\n"
        "for step in range(20):\n"
        "    request = world.Isend(data, (rank + 1) % size, tag=step)\n"
        "    world.Recv(bytearray(10000), (rank - 1) % size, tag=step)\n"
        "    request.Wait()\n"
        "    world.Barrier()\n"
        "world.allreduce(rank)\n"
    )
    command = [MPIRUN, "-n", "4", sys.executable, program]
    done = trace_cli("record", "-o", directory / "run", "--merge", "--", *command)
    assert done.returncode == 0, done.stderr
    return directory / "run.annals"


@pytest.fixture(scope="session")
def archives() -> Path:
    """Pipit's archives, which are not part of the repository."""
    samples = ROOT.parent / "shared" / "reference" / "otf2-samples"
    if not samples.is_dir():
        pytest.skip(f"NOT TESTED: {samples} is absent")
    return samples


def run_python(text: str, *arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a program in another process."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **settings)
