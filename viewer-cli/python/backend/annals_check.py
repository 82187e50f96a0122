"""Checks the files of packages: wheels (by `check_wheel.py`) and directories that tarballs are made of.

    python3 annals_check.py [--this-machine] [--only-programs] x86_64|aarch64 DIRECTORY

prints what is wrong with a directory that `install.sh` has filled; then the exit code is 1. Files for other machines may need glibc
2.28 at most, no other library than glibc's, and may name no directory of this machine; `--this-machine` does not check these three.
`--only-programs` checks nothing but executables and shared libraries; `--depends` prints the Debian packages that they need.

Needs readelf (Debian: binutils), and nothing but Python's standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from annals_cargo import ARCHITECTURES, GLIBC, WORKSPACE

#: Newest version of glibc's symbols in files for other machines.
NEWEST_GLIBC = tuple(map(int, GLIBC.split(".")))
#: Libraries that files for other machines may need: glibc's, and the unwinder, which every Linux has. None of C++ or Python.
SYSTEM_LIBRARIES = re.compile(r"lib(c\.so\.6|m\.so\.6|pthread\.so\.0|dl\.so\.2|rt\.so\.1|util\.so\.1|gcc_s\.so\.1)|ld-linux-.+")
#: Processors as readelf names them.
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}
#: What an installation contains.
FILES = [
    "bin/trace-cli",
    "bin/trace-merge",
    "lib/libannals.so",
    "lib/libannals.a",
    "lib/libannals_instrument.so",
    "lib/libannals_mpi.so",
    "lib/pkgconfig/annals.pc",
    "include/annals.h",
    "include/annals.hpp",
    "include/annals_t.h",
    "share/man/man1/trace-cli.1",
    "share/man/man1/trace-cli-record.1",
    "share/doc/annals/manual/tutorial.md",
    "README.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
]


def readelf(path: Path, *options: str) -> str:
    done = subprocess.run(["readelf", "--wide", *options, path], check=True, capture_output=True, text=True)
    return done.stdout


def machine_paths() -> list[bytes]:
    """Returns directories of this machine that no file of a package for other machines may name."""
    home = Path.home()
    directories = [home, Path(os.environ.get("CARGO_HOME", home / ".cargo")), WORKSPACE, Path(tempfile.gettempdir())]
    return [*(f"{directory}/".encode() for directory in directories if directory != Path("/")), b"/registry/src/index."]


def problems_of_paths(content: bytes, name: str) -> list[str]:
    """Returns which directories of this machine a file names."""
    found = []
    for path in machine_paths():
        if path in content:
            at = content.index(path)
            context = re.split(rb"[\0\n]", content[at : at + 100])[0].decode(errors="replace")
            found.append(f"{name}: names a directory of this machine: {context}")
    return found


def versions_of_glibc(path: Path) -> set[tuple[int, int]]:
    """Returns the versions of glibc's symbols that an executable or a shared library needs."""
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", readelf(path, "--version-info"))
    return {(int(major), int(minor)) for major, minor in versions}


def depends(directory: Path) -> str:
    """Returns the Debian packages that the programs and libraries of a directory need, as a package's field Depends has them."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    programs = [path for path in files if path.open("rb").read(4) == b"\x7fELF"]
    newest = max(version for path in programs for version in versions_of_glibc(path))
    needs_unwinder = any("[libgcc_s.so.1]" in readelf(path, "--dynamic") for path in programs)
    return f"libc6 (>= {newest[0]}.{newest[1]})" + ", libgcc-s1" * needs_unwinder


def problems_of_program(path: Path, name: str, is_for_others: bool, arch: str) -> list[str]:
    """Returns what is wrong with an executable or a shared library."""
    problems = []
    machine = re.search(r"^ *Machine: *(.*)$", readelf(path, "--file-header"), re.MULTILINE)
    assert machine, f"{name}: readelf prints no machine"
    if MACHINES.get(arch, arch) not in machine[1]:
        problems.append(f"{name}: is for {machine[1]}, not for {arch}")
    dynamic = readelf(path, "--dynamic")
    for tag in re.findall(r"\((RPATH|RUNPATH)\)", dynamic):
        problems.append(f"{name}: has {tag}: libraries are searched where this machine has them")
    sections = re.findall(r"^ *\[ *\d+\] (\S+)", readelf(path, "--section-headers"), re.MULTILINE)
    assert sections, f"{name}: readelf prints no sections"
    for section in sections:
        # The name of a script for gdb is part of the standard library's code, and no debugging information.
        is_debugging = section.startswith((".debug", ".zdebug")) and section != ".debug_gdb_scripts"
        if section == ".symtab" or is_debugging:
            problems.append(f"{name}: not stripped: has {section}")
    if is_for_others:
        for version in sorted(version for version in versions_of_glibc(path) if version > NEWEST_GLIBC):
            problems.append(f"{name}: needs GLIBC_{version[0]}.{version[1]}, which is newer than {GLIBC}")
        for library in re.findall(r"\(NEEDED\) .*\[(.+)\]", dynamic):
            if not SYSTEM_LIBRARIES.fullmatch(library):
                problems.append(f"{name}: needs {library}, which not every machine has")
    return problems


def _problems_of_link(path: Path, name: str, directory: Path) -> list[str]:
    """Returns what is wrong with a symbolic link: it must lead to a file of the directory, wherever that is moved."""
    to = path.readlink()
    if to.is_absolute() or not path.resolve().is_relative_to(directory.resolve()):
        return [f"{name}: leads out of the directory, to {to}"]
    return [] if path.exists() else [f"{name}: leads to {to}, which does not exist"]


def problems_of_directory(directory: Path, arch: str, is_for_others: bool) -> list[str]:
    """Returns what is wrong with a directory that a tarball is made of."""
    found = [f"{name} is missing" for name in FILES if not (directory / name).exists()]
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found += _problems_of_link(path, name, directory)
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        is_program = content.startswith(b"\x7fELF")
        # Pages of the manual name directories as examples.
        if is_for_others and not name.startswith("share/doc/"):
            found += problems_of_paths(content, name)
        if is_program:
            found += problems_of_program(path, name, is_for_others, arch)
        elif ".so" in path.suffixes or name.startswith("bin/"):
            found.append(f"{name}: is not an ELF file")
        if name.startswith("bin/") and not os.access(path, os.X_OK):
            found.append(f"{name}: is not executable")
        if path.suffix == ".pc" and b"\nprefix=${pcfiledir}" not in b"\n" + content:
            found.append(f"{name}: its prefix is not where the file is")
    return found


def problems_of_programs(directory: Path, arch: str, is_for_others: bool) -> list[str]:
    """Returns what is wrong with the executables and shared libraries below a directory."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.is_symlink()]
    found = []
    for path in files:
        content = path.read_bytes()
        if content.startswith(b"\x7fELF"):
            name = path.relative_to(directory).as_posix()
            found += problems_of_program(path, name, is_for_others, arch)
            found += problems_of_paths(content, name) if is_for_others else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="annals_check.py", description="Checks the files of a package.", allow_abbrev=False)
    parser.add_argument("--this-machine", action="store_true", help="the files are for this machine only")
    parser.add_argument("--only-programs", action="store_true", help="check executables and shared libraries only")
    parser.add_argument("--depends", action="store_true", help="print the Debian packages that they need")
    parser.add_argument("arch", choices=ARCHITECTURES)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    if not arguments.directory.is_dir():
        parser.error(f"{arguments.directory} is not a directory")
    if arguments.depends:
        print(depends(arguments.directory))
        return
    problems = problems_of_programs if arguments.only_programs else problems_of_directory
    found = problems(arguments.directory, arguments.arch, not arguments.this_machine)
    for problem in found:
        print(problem)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
