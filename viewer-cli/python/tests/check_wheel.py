"""Checks a wheel by reading each of its files: ``python check_wheel.py WHEEL…``. Prints what is wrong; then the exit code is 1.

Needs readelf (Debian: binutils), and nothing but Python's standard library.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "annals_trace"
#: Files of the package that a wheel contains besides its modules in Python.
FILES = [
    "py.typed",
    "_installed/bin/trace-cli",
    "_installed/lib/libannals.so",
    "_installed/lib/libannals_instrument.so",
    "_installed/lib/libannals_mpi.so",
    "_installed/include/annals.h",
    "_installed/include/annals.hpp",
    "_installed/include/annals_t.h",
]
#: What linkers read instead of a library.
SCRIPT = f"{PACKAGE}/_installed/lib/libannals.so"
MODULES = sorted(path.name for path in (ROOT / "viewer-cli" / "python" / PACKAGE).glob("*.py*") if path.is_file())
ENTRY_POINTS = {"trace-cli": "annals_trace._programs:trace_cli", "trace-merge": "annals_trace._programs:trace_merge"}
#: Highest version of glibc's symbols, and bytes, of a wheel for other machines.
GLIBC = (2, 28)
MOST_BYTES = 25 * 1000 * 1000


def readelf(path: Path, *options: str) -> str:
    done = subprocess.run(["readelf", "--wide", *options, path], check=True, capture_output=True, text=True)
    return done.stdout


def machine_paths() -> list[bytes]:
    """Returns directories of this machine that no file of a wheel for other machines may name."""
    home = Path.home()
    directories = [home, Path(os.environ.get("CARGO_HOME", home / ".cargo")), ROOT, Path(tempfile.gettempdir())]
    return [*(f"{directory}/".encode() for directory in directories if directory != Path("/")), b"/registry/src/index."]


def problems_of_program(path: Path, name: str, is_for_others: bool) -> list[str]:
    """Returns what is wrong with an executable or a shared library."""
    problems = []
    for tag in re.findall(r"\((RPATH|RUNPATH)\)", readelf(path, "--dynamic")):
        problems.append(f"{name}: has {tag}: libraries are searched where this machine has them")
    sections = re.findall(r"^ *\[ *\d+\] (\S+)", readelf(path, "--section-headers"), re.MULTILINE)
    assert sections, f"{name}: readelf prints no sections"
    for section in sections:
        # The name of a script for gdb is part of the standard library's code, and no debugging information.
        is_debugging = section.startswith((".debug", ".zdebug")) and section != ".debug_gdb_scripts"
        if section == ".symtab" or is_debugging:
            problems.append(f"{name}: not stripped: has {section}")
    if is_for_others:
        versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf(path, "--version-info"))
        newer = sorted({version for version in ((int(a), int(b)) for a, b in versions) if version > GLIBC})
        for version in newer:
            problems.append(f"{name}: needs GLIBC_{version[0]}.{version[1]}, which is newer than {GLIBC[0]}.{GLIBC[1]}")
    return problems


def problems(wheel: Path) -> list[str]:
    """Returns what is wrong with a wheel."""
    is_for_others = "manylinux" in wheel.name
    found = []
    if is_for_others and wheel.stat().st_size > MOST_BYTES:
        found.append(f"{wheel.stat().st_size:,} bytes: at most {MOST_BYTES:,} are allowed")
    if is_for_others and f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64" not in wheel.name:
        found.append("its name does not say glibc 2.28")
    if "-cp310-abi3-" not in wheel.name:
        found.append("its name does not say that it is for Python 3.10 and later")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as directory:
        names = archive.namelist()
        extensions = [name for name in names if re.fullmatch(rf"{PACKAGE}/_native[^/]*\.so", name)]
        if len(extensions) != 1:
            found.append(f"one extension is expected, not {extensions}")
        for name in [*MODULES, *FILES]:
            if f"{PACKAGE}/{name}" not in names:
                found.append(f"{PACKAGE}/{name} is missing")
        information = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        entries = configparser.ConfigParser()
        entries.read_string(archive.read(information[0]).decode() if information else "")
        scripts = dict(entries["console_scripts"]) if entries.has_section("console_scripts") else {}
        if scripts != ENTRY_POINTS:
            found.append(f"entry points are {scripts}, not {ENTRY_POINTS}")
        for name in names:
            content = archive.read(name)
            if not name.startswith(f"{PACKAGE}/") and not re.match(rf"{PACKAGE}-[^/]+\.dist-info/", name):
                found.append(f"{name} is not part of the package")
            if "__pycache__" in name or name.endswith(".pyc"):
                found.append(f"{name} is not needed")
            if is_for_others:
                for path in machine_paths():
                    if path in content:
                        found.append(f"{name}: names a directory of this machine: {context(content, path)}")
            if content.startswith(b"\x7fELF"):
                extracted = Path(directory) / "program"
                extracted.write_bytes(content)
                found += problems_of_program(extracted, name, is_for_others)
                mode = archive.getinfo(name).external_attr >> 16
                if "/bin/" in name and not mode & 0o100:
                    found.append(f"{name}: is not executable")
            elif name == SCRIPT:
                named = re.search(rb"^INPUT\((libannals\.so\.[\d.]+)\)$", content, re.MULTILINE)
                library = named and f"{PACKAGE}/_installed/lib/{named[1].decode()}"
                if library not in names or not archive.read(library).startswith(b"\x7fELF"):
                    found.append(f"{name}: is no script by which linkers find a library of the wheel")
            elif name.endswith(".so") or "/bin/" in name:
                found.append(f"{name}: is not an ELF file")
    return found


def context(content: bytes, path: bytes) -> str:
    at = content.index(path)
    return content[at : at + 100].split(b"\0")[0].decode(errors="replace")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: check_wheel.py WHEEL…")
    failed = False
    for wheel in map(Path, sys.argv[1:]):
        found = problems(wheel)
        failed |= bool(found)
        for problem in found:
            print(f"{wheel.name}: {problem}")
        if not found:
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, all files are as they should be")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
