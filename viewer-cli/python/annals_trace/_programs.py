"""The programs of the package: entry points into one executable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Where the build puts the executable, the libraries that it preloads, and headers.
INSTALLED = Path(__file__).resolve().parent / "_installed"


def executable() -> Path:
    """Returns the path of the executable that is ``trace-cli`` and ``trace-merge``.

    Raises:
        FileNotFoundError: It is not there, because the package was not built with it.
    """
    path = INSTALLED / "bin" / "trace-cli"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the package from its wheel, or with pip from its sources")
    return path


def library(name: str) -> Path:
    """Returns the path of a shared library of the package, such as ``libannals.so``: of the file that programs load.

    Its directory is also what a linker needs: ``-L DIRECTORY -lannals -Wl,-rpath,DIRECTORY``.
    """
    directory = INSTALLED / "lib"
    # Where there is one with a version, the other is for linkers.
    return next(directory.glob(f"{name}.*"), directory / name)


def include() -> Path:
    """Returns the directory of the headers ``annals.h`` and ``annals_t.h``, for C and C++ programs."""
    return INSTALLED / "include"


def _become(name: str) -> None:
    path = executable()
    # The program is the same; what it does is decided by its name.
    os.execv(path, [name, *sys.argv[1:]])


def trace_cli() -> None:
    """Becomes ``trace-cli``."""
    _become("trace-cli")


def trace_merge() -> None:
    """Becomes ``trace-merge``."""
    _become("trace-merge")
