"""Merging by a job array of Slurm: the commands of the manual, on a real Slurm of one node, which the tests start and stop."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import run_python, trace_cli
from test_distributed import RECORD
from test_pages import BOOK

import annals_trace

SLICES = 8
#: Longest time until a daemon answers, or a job has ended, seconds.
PATIENCE_S = 30.0
#: Debian's daemons are in directories that the PATH of a user may not have.
SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"])

CONFIGURATION = """
ClusterName=annals
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
SlurmctldPort={slurmctld_port}
SlurmdPort={slurmd_port}
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
# Without cgroups, so that it starts in a container, too.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
# Tasks of an array run at the same time, one on each processor.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# Jobs start when they can, rather than once a minute, and are known after their end.
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
MinJobAge=600
KillWait=1
# Even if there are fewer processors than configured.
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def program(name: str) -> str:
    found = shutil.which(name, path=SEARCHED)
    if found is None:
        pytest.skip(f"NOT TESTED: {name} is absent (Debian: apt-get install slurm-wlm munge)")
    return found


def until(is_done: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    """Waits until a condition holds. Returns whether it does."""
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True


@dataclass(frozen=True)
class Slurm:
    """A Slurm that runs."""

    #: For Slurm's commands, and for jobs: they take the variables of `sbatch`.
    environment: dict[str, str]

    def run(self, command: str, directory: Path) -> str:
        """Runs a command in Bash, as a user would. Returns what it prints."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def queue(self, directory: Path) -> list[list[str]]:
        """Returns job, state and reason of each job and each task of an array that has not ended."""
        listed = self.run("squeue --noheader --array --format '%i %T %r'", directory)
        return [line.split() for line in listed.splitlines()]

    def wait(self, directory: Path) -> None:
        """Waits until no job is in the queue."""
        assert until(lambda: not self.queue(directory)), self.run("scontrol show jobs", directory)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Slurm with one node, which is this machine. All of its files are in a temporary directory."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: Slurm starts jobs as root only")
    munged, slurmctld, slurmd = program("munged"), program("slurmctld"), program("slurmd")
    directory = tmp_path_factory.mktemp("slurm")
    (directory / "munge.key").write_bytes(os.urandom(128))
    (directory / "munge.key").chmod(0o400)
    (directory / "state").mkdir()
    (directory / "spool").mkdir()
    host = socket.gethostname().partition(".")[0]
    configuration = directory / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            directory=directory,
            slurmctld_port=free_port(),
            slurmd_port=free_port(),
            processors=max(os.cpu_count() or 1, 2),
        )
    )
    programs = directory / "bin"
    programs.mkdir()
    for name in ("trace-cli", "trace-merge"):
        (programs / name).symlink_to(annals_trace.executable())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))},
        "SLURM_CONF": str(configuration),
        "PATH": os.pathsep.join([str(programs), SEARCHED]),
    }
    slurm = Slurm(environment)

    def start(command: list[str], is_up: Callable[[], bool]) -> None:
        """Starts a daemon that `stack` stops. Skips the tests if it does not start."""
        log = directory / f"{Path(command[0]).name}.output"
        with log.open("wb") as output:
            daemon = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        stack.callback(stop, daemon)
        if not until(lambda: daemon.poll() is not None or is_up()) or daemon.poll() is not None:
            last = log.read_text(errors="replace").splitlines()[-3:]
            pytest.skip(f"NOT TESTED: Slurm did not start: {log.stem}: {' / '.join(last)}")

    def answers(*command: str, expected: str = "") -> Callable[[], bool]:
        def check() -> bool:
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            return done.returncode == 0 and expected in done.stdout

        return check

    # By force, since no other user can enter pytest's directories, nor has to.
    munge = [munged, "--foreground", "--force", "--key-file", directory / "munge.key", "--socket", directory / "munge.socket"]
    munge += ["--pid-file", directory / "munged.pid", "--log-file", directory / "munged.log"]
    munge += ["--seed-file", directory / "munged.seed", "--num-threads", "2"]
    with ExitStack() as stack:
        start([str(part) for part in munge], (directory / "munge.socket").exists)
        start([slurmctld, "-D"], answers(program("scontrol"), "ping", expected="UP"))
        state = (program("sinfo"), "--noheader", "--format", "%T")
        start([slurmd, "-D", "-N", host], answers(*state, expected="idle\n"))
        yield slurm
        # No job is left after its daemons.
        subprocess.run([program("scancel"), "--user", "root"], env=environment, capture_output=True)
        until(lambda: not slurm.queue(directory), 5)


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """Ends a daemon, if need be by force."""
    daemon.terminate()
    try:
        daemon.wait(5)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


# ---- The manual's section ----


@dataclass(frozen=True)
class Section:
    """What the manual says about job arrays."""

    #: Submits plan, array and join.
    submit: str
    #: Submits what is missing, and the join.
    submit_again: str
    #: The script of a task.
    script: str


@pytest.fixture(scope="module")
def section() -> Section:
    """The blocks of the manual, with fewer slices."""
    page = (BOOK / "many-machines.md").read_text(encoding="utf-8")
    text = page.split("\n## A job array of Slurm\n")[1].split("\n## ")[0]
    submit, submit_again = re.findall(r"^```sh,norun=.*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (script,) = re.findall(r"^<!-- file: slice\.sh -->\n```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert "64" not in script
    assert [len(re.findall(r"\b64\b", block)) for block in (submit, submit_again)] == [1, 2]
    return Section(submit.replace("64", str(SLICES)), submit_again.replace("64", str(SLICES)), script)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of three recordings, large enough that a slice takes some time."""
    directory = tmp_path_factory.mktemp("recorded") / "run"
    for calls in (300_000, 300_000, 50_000):
        done = run_python(RECORD, directory, calls)
        assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def joined(run: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes that this process writes."""
    output = tmp_path_factory.mktemp("joined") / "run.annals"
    assert annals_trace.merge(run, output, slices=SLICES).is_complete
    return output.read_bytes()


def prepare(section: Section, recordings: Path, directory: Path) -> None:
    """Sets up the directory that the manual's blocks are run in."""
    (directory / "heat").symlink_to(recordings)
    (directory / "slice.sh").write_text(section.script)


def test_a_job_array_writes_what_one_process_writes(
    slurm: Slurm, section: Section, run: Path, joined: bytes, tmp_path: Path
) -> None:
    prepare(section, run, tmp_path)
    slurm.run(section.submit, tmp_path)
    slurm.wait(tmp_path)
    assert (tmp_path / "run.annals").read_bytes() == joined, logs(tmp_path)
    assert len(list(tmp_path.glob("slice-*.annals"))) == SLICES
    verified = trace_cli("verify", tmp_path / "run.annals", run)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def logs(directory: Path) -> str:
    """Returns what the jobs printed."""
    return "\n".join(f"{log.name}: {log.read_text(errors='replace')}" for log in sorted(directory.glob("slurm-*.out")))


def test_recordings_with_losses_do_not_stop_the_array(slurm: Slurm, section: Section, demo: Path, tmp_path: Path) -> None:
    output = tmp_path / "one-process.annals"
    assert not annals_trace.merge(demo.parent, output, slices=SLICES).is_complete
    prepare(section, demo.parent, tmp_path)
    slurm.run(section.submit, tmp_path)
    slurm.wait(tmp_path)
    assert (tmp_path / "run.annals").read_bytes() == output.read_bytes(), logs(tmp_path)
    # The join has the exit code that a merge has.
    assert "ExitCode=3:0" in slurm.run("scontrol show jobs", tmp_path)


def writer_of(directory: Path, number: int) -> int | None:
    """Returns the process that writes a slice, if it is half written."""
    found = list(directory.glob(f"slice-{number}.annals.*.tmp"))
    return int(found[0].suffixes[-2][1:]) if found else None


def kill_two(slurm: Slurm, directory: Path) -> bool:
    """Kills the process that writes slice 6, and cancels the task of slice 3, both half written. Returns whether it met them."""
    stopped, killed = None, None
    end = time.monotonic() + PATIENCE_S
    while (stopped is None or killed is None) and time.monotonic() < end:
        try:
            if stopped is None and (writer := writer_of(directory, 3)) is not None:
                # It does not finish until it is cancelled.
                os.kill(writer, signal.SIGSTOP)
                stopped = writer
            if killed is None and (writer := writer_of(directory, 6)) is not None:
                os.kill(writer, signal.SIGKILL)
                killed = writer
        except ProcessLookupError:
            # It was faster.
            pass
        if (directory / "slice-8.annals").exists():
            break
    tasks = [task for task, state, _ in slurm.queue(directory) if task.endswith("_3") and state == "RUNNING"]
    if tasks:
        slurm.run(f"scancel {tasks[0]}", directory)
    slurm.wait(directory)
    return sorted(missing(directory)) == [3, 6]


def missing(directory: Path) -> list[int]:
    return [number for number in range(1, SLICES + 1) if not (directory / f"slice-{number}.annals").exists()]


def test_tasks_that_were_killed_are_submitted_again(
    slurm: Slurm, section: Section, run: Path, joined: bytes, tmp_path: Path
) -> None:
    for attempt in range(10):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        prepare(section, run, directory)
        slurm.run(section.submit, directory)
        if kill_two(slurm, directory):
            break
    else:
        pytest.fail("no slice was half written when its process was to be killed")
    # The join was not started, and is not in the queue any more.
    assert not (directory / "run.annals").exists()
    join = ["merge", "--join", *sorted(directory.glob("slice-*.annals")), "-o", directory / "run.annals"]
    refused = trace_cli(*join)
    assert refused.returncode == 1
    assert f"slice 3 of {SLICES} is missing before this one" in refused.stderr
    whole = {slice.name: slice.stat().st_mtime_ns for slice in directory.glob("slice-*.annals")}
    slurm.run(section.submit_again, directory)
    slurm.wait(directory)
    assert (directory / "run.annals").read_bytes() == joined, logs(directory)
    assert {name: (directory / name).stat().st_mtime_ns for name in whole} == whole
