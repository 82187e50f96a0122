"""Builds the wheel (PEP 517): one build by Cargo of the extension, the programs and the libraries; maturin writes its metadata.

maturin's own build of the extension would build most crates a second time, because Cargo chooses their features by what is
built with them.

Environment variables, and settings of `pip --config-settings` with the same names without ANNALS_WHEEL_ and in lower case:

ANNALS_WHEEL_PROFILE    Cargo's profile (release)
ANNALS_WHEEL_ZIG        1: for every Linux with glibc 2.28 or later, by zig's compiler. Otherwise the wheel is for this machine
ANNALS_WHEEL_BUILT      Cargo's directory where everything is built already, such as target/debug
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
WORKSPACE = PACKAGE.parent.parent
MODULE = "annals_trace"
GLIBC = "2.28"
#: Cargo's packages, and the files of each: as Cargo names it, and where the wheel has it.
BUILT = {
    "annals-python": ("libannals_python.so", "_native.abi3.so"),
    "annals-cli": ("trace-cli", "_installed/bin/trace-cli"),
    "libannals": ("libannals.so", "_installed/lib/libannals.so"),
    "libannals-instrument": ("libannals_instrument.so", "_installed/lib/libannals_instrument.so"),
    "annals-mpi": ("libannals_mpi.so", "_installed/lib/libannals_mpi.so"),
}


def _setting(settings: dict | None, name: str, default: str) -> str:
    value = (settings or {}).get(name) or os.environ.get(f"ANNALS_WHEEL_{name.upper()}")
    return value or default


def _need(program: str, what: str) -> None:
    if shutil.which(program) is None:
        raise SystemExit(f"annals-trace: {program} is missing: install {what}")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=WORKSPACE, check=True, stdout=subprocess.PIPE, text=True).stdout


def _remap() -> dict[str, str]:
    """Returns compilers' options, by environment variable, that keep the paths of this machine out of messages."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    sysroot = _output("rustc", "--print", "sysroot").strip()
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


def _build(profile: str, zig: bool) -> Path:
    """Builds everything. Returns the directory where it is."""
    _need("cargo", "Rust 1.93 or newer (https://rustup.rs)")
    _need("cc", "a C compiler (Debian: gcc)")
    built = Path(json.loads(_output("cargo", "metadata", "--no-deps", "--format-version", "1"))["target_directory"])
    # The extension is for every Python: which one is first on PATH, if there is one, must not matter.
    environment = {**os.environ, "PYO3_NO_PYTHON": "1"}
    if profile == "release":
        environment |= _remap()
    packages = [argument for package in BUILT for argument in ("-p", package)]
    command = ["cargo", "zigbuild" if zig else "build", "--locked", "--profile", profile, *packages]
    if zig:
        target = "x86_64-unknown-linux-gnu"
        command += ["--target", f"{target}.{GLIBC}"]
        built = built / target
    # What Cargo prints is for people, and standard output is the frontend's.
    subprocess.run(command, cwd=WORKSPACE, env=environment, check=True, stdout=sys.stderr)
    return built / ("debug" if profile == "dev" else profile)


def _information(directory: Path, tag: str) -> Path:
    """Returns the directory `.dist-info`, which maturin makes of `pyproject.toml`."""
    _need("maturin", "it with pip")
    command = ["maturin", "pep517", "write-dist-info", "--interpreter", sys.executable]
    command += ["--locked", "--compatibility", "linux", "--metadata-directory", str(directory)]
    subprocess.run(command, cwd=PACKAGE, check=True, stdout=sys.stderr)
    [information] = directory.glob("*.dist-info")
    wheel = information / "WHEEL"
    # maturin builds nothing here: it does not know for which machines.
    text, replaced = re.subn(r"^Tag: .*$", f"Tag: {tag}", wheel.read_text(), flags=re.MULTILINE)
    assert replaced == 1, text
    wheel.write_text(text)
    licenses = information / "licenses"
    licenses.mkdir()
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(WORKSPACE / name, licenses / name)
    return information


def _link_name(library: Path) -> None:
    """Renames a library to its SONAME, so that programs find it, and lets `-l` find it by a linker script.

    A wheel has no symbolic links, and of two copies a process could load both.
    """
    dynamic = _output("readelf", "--wide", "--dynamic", str(library))
    [soname] = re.findall(r"\(SONAME\) .*\[(.+)\]", dynamic)
    library.rename(library.with_name(soname))
    library.write_text(f"/* For linkers; programs load {soname}. */\nINPUT({soname})\n")


def _lay_out(directory: Path, built: Path) -> None:
    """Puts the module into a directory, as it is installed."""
    module = directory / MODULE
    module.mkdir()
    for path in (PACKAGE / MODULE).iterdir():
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            shutil.copy2(path, module / path.name)
    for source, name in BUILT.values():
        to = module / name
        to.parent.mkdir(parents=True, exist_ok=True)
        # The profile for users strips; others keep what debuggers need, which is large.
        subprocess.run(["strip", "-o", to, built / source], check=True)
    _link_name(module / "_installed" / "lib" / "libannals.so")
    include = module / "_installed" / "include"
    include.mkdir()
    for header in (WORKSPACE / "recorder" / "capi" / "include").glob("annals*.h*"):
        shutil.copy2(header, include / header.name)


def _pack(directory: Path, information: Path, wheel: Path) -> None:
    """Writes all files of a directory into a wheel, with their checksums."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    # The metadata is last, as the format of wheels recommends.
    files.sort(key=lambda path: information in path.parents)
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name: str, content: bytes, mode: int) -> None:
            # No time: the same files make the same wheel.
            member = zipfile.ZipInfo(name)
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content, compresslevel=9)

        for path in files:
            name, content = path.relative_to(directory).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
            add(name, content, 0o755 if os.access(path, os.X_OK) else 0o644)
        name = f"{information.name}/RECORD"
        add(name, "".join([*record, f"{name},,\n"]).encode(), 0o644)


def _tag(zig: bool) -> str:
    machine = platform.machine()
    if zig and machine != "x86_64":
        raise SystemExit(f"annals-trace: a wheel for other machines (zig=1) is built on x86_64 only; this is {machine}")
    return f"cp310-abi3-{f'manylinux_{GLIBC}'.replace('.', '_') if zig else 'linux'}_{machine}"


def build_wheel(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None) -> str:
    for program in ("strip", "readelf"):
        _need(program, "binutils")
    zig = _setting(config_settings, "zig", "0") == "1"
    tag = _tag(zig)
    built = _setting(config_settings, "built", "")
    built = WORKSPACE / built if built else _build(_setting(config_settings, "profile", "release"), zig)
    with tempfile.TemporaryDirectory(prefix="annals-wheel-") as temporary:
        directory = Path(temporary)
        information = _information(directory, tag)
        _lay_out(directory, built)
        name = f"{information.name.removesuffix('.dist-info')}-{tag}.whl"
        _pack(directory, information, Path(wheel_directory) / name)
    return name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict | None = None) -> str:
    tag = _tag(_setting(config_settings, "zig", "0") == "1")
    return _information(Path(metadata_directory), tag).name


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    zig = _setting(config_settings, "zig", "0") == "1"
    return ["cargo-zigbuild>=0.20", "ziglang>=0.13"] if zig else []


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    raise SystemExit("annals-trace is built from its repository: pip install ./viewer-cli/python")
