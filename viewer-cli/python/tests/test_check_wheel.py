"""What ``check_wheel.py`` finds wrong with wheels that are made wrong on purpose."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
import check_wheel

INFORMATION = "annals_trace-0.dist-info/"
ENTRY_POINTS = "[console_scripts]\n" + "".join(f"{name}={what}\n" for name, what in check_wheel.ENTRY_POINTS.items())
LIBRARY = f"{check_wheel.SCRIPT}.0.1"
OTHERS = "annals_trace-0-cp310-abi3-manylinux_2_28_x86_64.whl"
HERE = "annals_trace-0-cp310-abi3-linux_x86_64.whl"


def compiled(directory: Path, code: str, *options: str) -> bytes:
    output = directory / "library.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", output, *options]
    subprocess.run(command, input=code.encode(), check=True)
    return output.read_bytes()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of a wheel that is right."""
    library = compiled(tmp_path_factory.mktemp("library"), "int one(void) { return 1; }", "-s")
    files = {f"annals_trace/{name}": b"" for name in [*check_wheel.MODULES, *check_wheel.FILES]}
    files |= {name: library for name in files if name.endswith(".so") or "/bin/" in name}
    files["annals_trace/_native.abi3.so"] = files[LIBRARY] = library
    files[check_wheel.SCRIPT] = b"INPUT(libannals.so.0.1)\n"
    files[INFORMATION + "entry_points.txt"] = ENTRY_POINTS.encode()
    return files


def found(directory: Path, name: str, files: dict[str, bytes]) -> list[str]:
    path = directory / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            information = zipfile.ZipInfo(member)
            information.external_attr = 0o755 << 16
            archive.writestr(information, content)
    return check_wheel.problems(path)


def test_a_right_wheel_has_no_problem(good: dict[str, bytes], tmp_path: Path) -> None:
    assert found(tmp_path, OTHERS, good) == []
    assert found(tmp_path, HERE, good) == []


def test_every_missing_file_is_found(good: dict[str, bytes], tmp_path: Path) -> None:
    for name in good:
        problems = found(tmp_path, HERE, {other: content for other, content in good.items() if other != name})
        assert problems, f"{name} is missing and that is not found"


@pytest.mark.parametrize(
    ("code", "options", "problem"),
    [
        ("int one(void) { return 1; }", ["-g"], "not stripped"),
        ("int one(void) { return 1; }", ["-s", "-Wl,-rpath,/opt/lib"], "libraries are searched"),
        ("int one(void) { return 1; }", ["-s", "-Wl,--version-script={versions}"], "needs GLIBC_2.38"),
        (f'const char *path = "{check_wheel.ROOT}/merger/src/lib.rs";', ["-s"], "names a directory of this machine"),
    ],
)
def test_a_library_for_this_machine_only_is_found(
    good: dict[str, bytes], tmp_path: Path, code: str, options: list[str], problem: str
) -> None:
    versions = tmp_path / "versions"
    versions.write_text("GLIBC_2.28 { global: two; }; GLIBC_2.38 { global: one; };\n")
    library = compiled(tmp_path, code, *(option.format(versions=versions) for option in options))
    problems = found(tmp_path, OTHERS, {**good, LIBRARY: library})
    assert len([line for line in problems if problem in line and "libannals.so" in line]) > 0, problems


def test_a_library_that_not_every_machine_has_is_found(good: dict[str, bytes], tmp_path: Path) -> None:
    compiled(tmp_path, "int two(void) { return 2; }", "-Wl,-soname,libstdc++.so.6")
    other = tmp_path / "libother.so"
    (tmp_path / "library.so").rename(other)
    library = compiled(tmp_path, "int two(void); int one(void) { return two(); }", "-s", f"-Wl,{other}")
    problems = found(tmp_path, OTHERS, {**good, LIBRARY: library})
    assert [line for line in problems if "needs libstdc++.so.6" in line], problems
    assert found(tmp_path, HERE, {**good, LIBRARY: library}) == []


def test_a_library_for_another_processor_is_found(good: dict[str, bytes], tmp_path: Path) -> None:
    others = OTHERS.replace("x86_64", "aarch64")
    problems = found(tmp_path, others, good)
    assert any("not for aarch64" in problem for problem in problems), problems


def test_a_script_that_finds_no_library_is_found(good: dict[str, bytes], tmp_path: Path) -> None:
    for script in (b"INPUT(libannals.so.0.2)\n", b""):
        problems = found(tmp_path, HERE, {**good, check_wheel.SCRIPT: script})
        assert any("no script" in problem for problem in problems), problems


def test_a_wheel_that_is_too_large_is_found(good: dict[str, bytes], tmp_path: Path) -> None:
    problems = found(tmp_path, OTHERS, {**good, "annals_trace/large": bytes(check_wheel.MOST_BYTES)})
    assert any("at most" in problem for problem in problems), problems
