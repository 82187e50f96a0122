"""Runs Cargo for packages: wheels, tarballs and Debian packages have what one build makes.

    python3 annals_cargo.py build [--profile PROFILE] [--arch x86_64|aarch64]
    python3 annals_cargo.py strip-program --arch x86_64|aarch64

`build` prints the directory where programs and libraries are. With `--arch` they are for every Linux with glibc 2.28 or later on that
processor, by zig's compiler; otherwise for this machine. `strip-program` prints the program that strips files of a processor.

Uses nothing but Python's standard library. What zig's compiler needs is installed into a virtual environment in Cargo's directory, if
it is not on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

WORKSPACE = Path(__file__).resolve().parents[3]
#: The oldest glibc that packages for other machines need.
GLIBC = "2.28"
ARCHITECTURES = ("x86_64", "aarch64")
#: Packages of PyPI that build for other machines.
ZIG = ["cargo-zigbuild>=0.20", "ziglang>=0.13"]
#: Cargo's packages. All are built together, because Cargo chooses features by what is built with them: a build of some of them would
#: build most crates a second time.
PACKAGES = ["annals-python", "annals-cli", "libannals", "libannals-instrument", "annals-mpi"]
#: Profiles for users. Their files contain no paths of this machine.
FOR_USERS = ("release", "dist")


def need(program: str, what: str) -> None:
    """Ends with what to install if a program is missing."""
    if shutil.which(program) is None:
        raise SystemExit(f"annals: {program} is missing: install {what}")


def output(*command: str) -> str:
    return subprocess.run(command, cwd=WORKSPACE, check=True, stdout=subprocess.PIPE, text=True).stdout


def minutes(profile: str, processors: int) -> int:
    """Returns about how many minutes a whole build takes."""
    text = (WORKSPACE / "recorder" / "capi" / "packaging" / "minutes").read_text()
    figures = {name: int(figure) for name, figure in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}
    # More than two processors help little: the end of the build links.
    return figures.get(profile, figures["release"]) * (1 if processors > 1 else 2)


def say_how_long(profile: str) -> None:
    processors = len(os.sched_getaffinity(0))
    print(
        f"annals: builds for about {minutes(profile, processors)} minutes on {processors} processors (profile {profile}), if nothing is"
        " built yet",
        file=sys.stderr,
        flush=True,
    )


def _remap() -> dict[str, str]:
    """Returns compilers' options, by environment variable, that keep the paths of this machine out of messages."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    sysroot = output("rustc", "--print", "sysroot").strip()
    # Registries' directories have names with hashes. They are there when the packages are.
    subprocess.run(["cargo", "fetch", "--locked", "--quiet"], cwd=WORKSPACE, check=True)
    registries = {str(directory): "crates" for directory in (cargo / "registry" / "src").glob("*")}
    # The last one that fits is used.
    paths = {str(Path.home()): "home", sysroot: "rust", str(cargo): "cargo", **registries, str(WORKSPACE): "annals"}
    # C sources have paths in the messages of their asserts.
    options = {"RUSTFLAGS": "--remap-path-prefix", "CFLAGS": "-ffile-prefix-map", "CXXFLAGS": "-ffile-prefix-map"}
    return {
        variable: " ".join([os.environ.get(variable, ""), *(f"{option}={path}={name}" for path, name in paths.items())]).strip()
        for variable, option in options.items()
    }


def _path_with_zig(directory: Path) -> str:
    """Returns a search path with cargo-zigbuild, and a Python that has zig. Installs both below `directory` unless PATH has them."""
    path = os.environ["PATH"]
    if shutil.which("cargo-zigbuild") is not None:
        return path
    programs = directory / "zig" / "bin"
    complete = directory / "zig" / "complete"
    if not complete.exists():
        print(f"annals: installs {' and '.join(ZIG)} below {directory / 'zig'}", file=sys.stderr, flush=True)
        shutil.rmtree(directory / "zig", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", directory / "zig"], check=True, stdout=sys.stderr)
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", *ZIG], check=True, stdout=sys.stderr)
        complete.touch()
    return f"{programs}{os.pathsep}{path}"


def _need_library_of(target: str) -> None:
    libraries = Path(output("rustc", "--print", "target-libdir", "--target", target).strip())
    if not any(libraries.glob("libstd-*")):
        raise SystemExit(f"annals: Rust's standard library for {target} is missing: rustup target add {target}")


def build(profile: str, arch: str | None = None) -> Path:
    """Builds everything. Returns the directory where it is. `arch` is the processor of other machines; `None` means this machine."""
    need("cargo", "Rust 1.93 or newer (https://rustup.rs)")
    need("cc", "a C compiler (Debian: gcc)")
    built = Path(json.loads(output("cargo", "metadata", "--no-deps", "--format-version", "1"))["target_directory"])
    # The extension is for every Python: which one is first on PATH, if there is one, must not matter.
    environment = {**os.environ, "PYO3_NO_PYTHON": "1"}
    packages = [argument for package in PACKAGES for argument in ("-p", package)]
    command = ["cargo", "zigbuild" if arch else "build", "--locked", "--profile", profile, *packages]
    if arch:
        target = f"{arch}-unknown-linux-gnu"
        _need_library_of(target)
        environment["PATH"] = _path_with_zig(built)
        command += ["--target", f"{target}.{GLIBC}"]
        built = built / target
    say_how_long(profile)
    if profile in FOR_USERS:
        environment |= _remap()
    # What Cargo prints is for people, and standard output is for the caller.
    subprocess.run(command, cwd=WORKSPACE, env=environment, check=True, stdout=sys.stderr)
    return built / ("debug" if profile == "dev" else profile)


def strip_program(arch: str) -> str:
    """Returns the program that strips files of a processor in place, by `--strip-all`, `--strip-unneeded` or `--strip-debug`."""
    if arch == platform.machine():
        need("strip", "binutils")
        return "strip"
    return str(WORKSPACE / "recorder" / "capi" / "packaging" / "strip.sh")


def main() -> None:
    parser = argparse.ArgumentParser(prog="annals_cargo.py", description="Builds what packages contain.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("--profile", default="dist")
    building.add_argument("--arch", choices=ARCHITECTURES)
    stripping = commands.add_parser("strip-program")
    stripping.add_argument("--arch", choices=ARCHITECTURES, required=True)
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            print(build(arguments.profile, arguments.arch))
        else:
            print(strip_program(arguments.arch))
    except subprocess.CalledProcessError as error:
        # Cargo has said what is wrong.
        sys.exit(f"annals: {error.cmd[0]} ended with {error.returncode}")


if __name__ == "__main__":
    main()
