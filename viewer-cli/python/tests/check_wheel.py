"""Checks a wheel by reading each of its files: ``python check_wheel.py WHEEL…``. Prints what is wrong; then the exit code is 1.

Needs readelf (Debian: binutils), and nothing but Python's standard library.
"""

from __future__ import annotations

import configparser
import re
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "viewer-cli" / "python" / "backend"))

from annals_check import GLIBC, problems_of_paths, problems_of_program  # noqa: E402

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
#: Most bytes of a wheel for other machines.
MOST_BYTES = 25 * 1000 * 1000


def problems(wheel: Path) -> list[str]:
    """Returns what is wrong with a wheel."""
    is_for_others = "manylinux" in wheel.name
    found = []
    if is_for_others and wheel.stat().st_size > MOST_BYTES:
        found.append(f"{wheel.stat().st_size:,} bytes: at most {MOST_BYTES:,} are allowed")
    if is_for_others and f"-manylinux_{GLIBC.replace('.', '_')}_" not in wheel.name:
        found.append(f"its name does not say glibc {GLIBC}")
    arch = re.search(r"_(x86_64|aarch64)\.whl$", wheel.name)
    if not arch:
        return [*found, "its name does not say for which processor it is"]
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
                found += problems_of_paths(content, name)
            if content.startswith(b"\x7fELF"):
                extracted = Path(directory) / "program"
                extracted.write_bytes(content)
                found += problems_of_program(extracted, name, is_for_others, arch[1])
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
