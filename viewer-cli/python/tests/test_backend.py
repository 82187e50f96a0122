"""What builds and checks packages: processors, minutes, and what is wrong with directories that tarballs are made of."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import check_wheel

import annals_build
import annals_cargo
import annals_check

OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"


def test_a_wheels_name_says_for_which_processor_it_is() -> None:
    assert annals_build._tag("aarch64", True) == "cp310-abi3-manylinux_2_28_aarch64"
    assert annals_build._arch({"zig": "1", "arch": "aarch64"}, True) == "aarch64"
    assert annals_build._arch({}, False) == platform.machine()


def test_a_processor_that_is_not_built_for_is_refused() -> None:
    with pytest.raises(SystemExit, match="zig=1 only"):
        annals_build._arch({"arch": OTHER}, False)
    with pytest.raises(SystemExit, match="not for `riscv64`"):
        annals_build._arch({"arch": "riscv64"}, True)


def test_a_processor_of_which_rust_has_no_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(annals_cargo, "output", lambda *_command: f"{tmp_path}\n")
    with pytest.raises(SystemExit, match="rustup target add aarch64-unknown-linux-gnu"):
        annals_cargo._need_library_of("aarch64-unknown-linux-gnu")
    (tmp_path / "libstd-0.rlib").touch()
    annals_cargo._need_library_of("aarch64-unknown-linux-gnu")


def test_a_build_says_how_long_it_takes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    release, dist = (annals_cargo.minutes(profile, 2) for profile in ("release", "dist"))
    assert 0 < release < dist
    assert annals_cargo.minutes("release", 64) == release
    assert annals_cargo.minutes("release", 1) == 2 * release
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    annals_cargo.say_how_long("dist")
    assert f"about {dist} minutes on 2 processors (profile dist)" in capsys.readouterr().err


def test_wrong_arguments_are_refused() -> None:
    for script in (annals_cargo, annals_check):
        done = subprocess.run([sys.executable, script.__file__, "riscv64"], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("usage: "), done


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that a tarball could be made of."""
    top = tmp_path / "top"
    library = tmp_path / "library.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-s", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=b"int one(void) { return 1; }", check=True)
    for name in annals_check.FILES:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_program = path.suffix == ".so" or path.parent.name == "bin"
        path.write_bytes(library.read_bytes() if is_program else b"")
        path.chmod(0o755 if is_program else 0o644)
    (top / "bin" / "trace-merge").unlink()
    (top / "bin" / "trace-merge").symlink_to("trace-cli")
    (top / "lib" / "pkgconfig" / "annals.pc").write_text("prefix=${pcfiledir}/../..\n")
    return top


def problems(directory: Path, is_for_others: bool = True) -> list[str]:
    return annals_check.problems_of_directory(directory, platform.machine(), is_for_others)


def test_a_right_directory_has_no_problem(directory: Path) -> None:
    assert problems(directory) == []


def test_every_file_that_is_missing_is_found(directory: Path) -> None:
    for name in annals_check.FILES:
        path = directory / name
        moved = path.rename(directory.parent / "moved")
        assert f"{name} is missing" in problems(directory)
        moved.rename(path)


def test_what_cannot_be_moved_is_found(directory: Path) -> None:
    link = directory / "bin" / "trace-merge"
    link.unlink()
    link.symlink_to(directory / "bin" / "trace-cli")
    (directory / "lib" / "pkgconfig" / "annals.pc").write_text("prefix=/usr\n")
    first, second = problems(directory)
    assert "leads out of the directory" in first
    assert "its prefix is not where the file is" in second


def test_names_of_directories_are_found_outside_of_the_manual(directory: Path) -> None:
    text = f"see {check_wheel.ROOT}/merger\n"
    (directory / "share" / "doc" / "annals" / "manual" / "tutorial.md").write_text(text)
    assert problems(directory) == []
    (directory / "share" / "man" / "man1" / "trace-cli.1").write_text(text)
    [problem] = problems(directory)
    assert problem == f"share/man/man1/trace-cli.1: names a directory of this machine: {check_wheel.ROOT}/merger"
    assert problems(directory, is_for_others=False) == []


def test_a_program_for_another_processor_is_found(directory: Path) -> None:
    found = annals_check.problems_of_directory(directory, OTHER, True)
    assert found and all(f"not for {OTHER}" in problem for problem in found)


def test_programs_are_checked_without_what_else_a_tarball_contains(directory: Path) -> None:
    (directory / "README.md").unlink()
    assert annals_check.problems_of_programs(directory, platform.machine(), True) == []
    assert annals_check.problems_of_programs(directory, OTHER, True) != []
