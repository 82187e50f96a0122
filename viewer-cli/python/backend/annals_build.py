"""Builds the wheel (PEP 517): first the programs and libraries that it contains, then, by maturin, the extension and the wheel.

Environment variables, and settings of `pip --config-settings` with the same names without ANNALS_WHEEL_ and in lower case:

ANNALS_WHEEL_PROFILE    Cargo's profile (release)
ANNALS_WHEEL_ZIG        1: for glibc 2.28 and later, by zig's compiler, as a wheel for other machines needs it
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import maturin

PACKAGE = Path(__file__).resolve().parent.parent
WORKSPACE = PACKAGE.parent.parent
INSTALLED = PACKAGE / "annals_trace" / "_installed"
GLIBC = "2.28"
#: Cargo's packages, and what the wheel has of each.
PARTS = {
    "annals-cli": ["bin/trace-cli"],
    "libannals": ["lib/libannals.so"],
    "libannals-instrument": ["lib/libannals_instrument.so"],
    "annals-mpi": ["lib/libannals_mpi.so"],
}


def _setting(settings: dict | None, name: str, default: str) -> str:
    value = (settings or {}).get(name) or os.environ.get(f"ANNALS_WHEEL_{name.upper()}")
    return value or default


def _target() -> str:
    machine = platform.machine()
    if machine != "x86_64":
        raise SystemExit(f"a wheel for other machines (zig=1) is built on x86_64 only; this is {machine}")
    return "x86_64-unknown-linux-gnu"


def _remap() -> str:
    """Returns what keeps the paths of this machine out of messages of panics."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    # The last one that fits is used.
    paths = {str(Path.home()): "home", sysroot: "rust", str(cargo): "cargo", str(WORKSPACE): "annals"}
    return " ".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items())


def _programs(profile: str, zig: bool) -> None:
    """Builds programs and libraries, and lays them out as they are installed."""
    packages = [argument for package in PARTS for argument in ("-p", package)]
    command = ["build", "--profile", profile, *packages]
    directory = "debug" if profile == "dev" else profile
    built = Path(os.environ.get("CARGO_TARGET_DIR", WORKSPACE / "target"))
    if zig:
        command = ["cargo", "zigbuild", *command[1:], "--target", f"{_target()}.{GLIBC}"]
        built = built / _target()
    else:
        command = ["cargo", *command]
    subprocess.run(command, cwd=WORKSPACE, check=True)
    shutil.rmtree(INSTALLED, ignore_errors=True)
    for names in PARTS.values():
        for name in names:
            to = INSTALLED / name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built / directory / to.name, to)
            # The profile for users strips; others keep what debuggers need, which is large.
            subprocess.run(["strip", "--strip-unneeded", to], check=True)
    include = INSTALLED / "include"
    include.mkdir()
    for header in (WORKSPACE / "recorder" / "capi" / "include").glob("annals*.h*"):
        shutil.copy2(header, include / header.name)


def build_wheel(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None) -> str:
    profile = _setting(config_settings, "profile", "release")
    zig = _setting(config_settings, "zig", "0") == "1"
    arguments = ["--profile", profile, "--strip"]
    if zig:
        arguments += ["--zig", "--target", _target(), "--compatibility", f"manylinux_{GLIBC.replace('.', '_')}"]
    if profile == "release":
        flags = os.environ.get("RUSTFLAGS", "")
        os.environ["RUSTFLAGS"] = f"{flags} {_remap()}".strip()
    _programs(profile, zig)
    os.environ["MATURIN_PEP517_ARGS"] = " ".join(arguments)
    return maturin.build_wheel(wheel_directory, None, metadata_directory)


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    zig = _setting(config_settings, "zig", "0") == "1"
    return ["cargo-zigbuild>=0.20", "ziglang>=0.13"] if zig else []


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    raise SystemExit("annals-trace is built from its repository: `pip install ./viewer-cli/python`, or `python -m build --wheel`")
