"""Builds the wheel (PEP 517): one build by Cargo of the extension, the programs and the libraries; maturin writes its metadata.

maturin's own build of the extension would build most crates a second time, because Cargo chooses their features by what is
built with them. `annals_cargo.py` runs Cargo, for this and for other kinds of packages.

Environment variables, and settings of `pip --config-settings` with the same names without ANNALS_WHEEL_ and in lower case:

ANNALS_WHEEL_PROFILE    Cargo's profile (release; dist for other machines)
ANNALS_WHEEL_ZIG        1: for every Linux with glibc 2.28 or later, by zig's compiler. Otherwise the wheel is for this machine
ANNALS_WHEEL_ARCH       with ANNALS_WHEEL_ZIG=1, the processor: x86_64 or aarch64 (this machine's)
ANNALS_WHEEL_BUILT      Cargo's directory where everything is built already, such as target/debug
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import annals_cargo
from annals_cargo import GLIBC, WORKSPACE

PACKAGE = Path(__file__).resolve().parent.parent
MODULE = "annals_trace"
#: Files that Cargo builds: as Cargo names them, and where the wheel has them.
BUILT = {
    "libannals_python.so": "_native.abi3.so",
    "trace-cli": "_installed/bin/trace-cli",
    "libannals.so": "_installed/lib/libannals.so",
    "libannals_instrument.so": "_installed/lib/libannals_instrument.so",
    "libannals_mpi.so": "_installed/lib/libannals_mpi.so",
}


def _setting(settings: dict | None, name: str, default: str) -> str:
    value = (settings or {}).get(name) or os.environ.get(f"ANNALS_WHEEL_{name.upper()}")
    return value or default


def _information(directory: Path, tag: str) -> Path:
    """Returns the directory `.dist-info`, which maturin makes of `pyproject.toml`."""
    annals_cargo.need("maturin", "it with pip")
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
    dynamic = annals_cargo.output("readelf", "--wide", "--dynamic", str(library))
    [soname] = re.findall(r"\(SONAME\) .*\[(.+)\]", dynamic)
    library.rename(library.with_name(soname))
    library.write_text(f"/* For linkers; programs load {soname}. */\nINPUT({soname})\n")


def _lay_out(directory: Path, built: Path, strip: str) -> None:
    """Puts the module into a directory, as it is installed. `strip` is the program that strips files."""
    module = directory / MODULE
    module.mkdir()
    for path in (PACKAGE / MODULE).iterdir():
        if path.is_file() and path.suffix in (".py", ".pyi", ".typed"):
            shutil.copy2(path, module / path.name)
    for source, name in BUILT.items():
        to = module / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built / source, to)
        # Profiles for users strip; others keep what debuggers need, which is large.
        subprocess.run([strip, "--strip-all", to], check=True)
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


def _arch(settings: dict | None, zig: bool) -> str:
    """Returns the processor that a wheel is for."""
    machine = platform.machine()
    arch = _setting(settings, "arch", machine)
    if not zig and arch != machine:
        raise SystemExit(f"annals-trace: a wheel for {arch} is built with zig=1 only; this is {machine}")
    if zig and arch not in annals_cargo.ARCHITECTURES:
        known = " or ".join(annals_cargo.ARCHITECTURES)
        raise SystemExit(f"annals-trace: a wheel for other machines (zig=1) is for {known}, not for `{arch}`")
    return arch


def _tag(arch: str, zig: bool) -> str:
    return f"cp310-abi3-{f'manylinux_{GLIBC}'.replace('.', '_') if zig else 'linux'}_{arch}"


def build_wheel(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None) -> str:
    annals_cargo.need("readelf", "binutils")
    zig = _setting(config_settings, "zig", "0") == "1"
    arch = _arch(config_settings, zig)
    tag = _tag(arch, zig)
    strip = annals_cargo.strip_program(arch)
    given = _setting(config_settings, "built", "")
    if given:
        built = WORKSPACE / given
    else:
        # Wheels for other machines are released, and are used more often than built.
        profile = _setting(config_settings, "profile", "dist" if zig else "release")
        built = annals_cargo.build(profile, arch if zig else None)
    with tempfile.TemporaryDirectory(prefix="annals-wheel-") as temporary:
        directory = Path(temporary)
        information = _information(directory, tag)
        _lay_out(directory, built, strip)
        name = f"{information.name.removesuffix('.dist-info')}-{tag}.whl"
        _pack(directory, information, Path(wheel_directory) / name)
    return name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict | None = None) -> str:
    zig = _setting(config_settings, "zig", "0") == "1"
    return _information(Path(metadata_directory), _tag(_arch(config_settings, zig), zig)).name


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    return annals_cargo.ZIG if _setting(config_settings, "zig", "0") == "1" else []


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    raise SystemExit("annals-trace is built from its repository: pip install ./viewer-cli/python")
