"""``python -m annals_trace script.py``: runs a script and records its functions."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from . import Recorder


def main() -> None:
    """Runs the script or module of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m annals_trace",
        description="Runs a script, or a module (-m), and records its functions (Python 3.12 and later).",
        epilog="Under `trace-cli record`, functions and MPI are in one recording: "
        "trace-cli record -o annals-run --merge -- mpirun -n 4 python -m annals_trace app.py",
    )
    parser.add_argument("-o", "--output", default="annals-run", metavar="DIR", help="directory of the recording [annals-run]")
    parser.add_argument("--modules", metavar="GLOBS", help="modules whose functions are recorded [all but the standard library]")
    parser.add_argument("--exclude", metavar="GLOBS", help="modules that are left out")
    parser.add_argument("--stdlib", action="store_true", help="record functions of the standard library, too")
    parser.add_argument("--c-functions", action="store_true", help="record functions in C, too")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module instead of a script; what follows are its arguments",
                        nargs=argparse.REMAINDER)
    parser.add_argument("script", nargs="?", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args()
    command = given.module or ([given.script, *given.arguments] if given.script else [])
    if not command:
        parser.error("a script, or -m MODULE")
    if not given.module and not Path(command[0]).exists():
        parser.error(f"{command[0]}: no such file")
    try:
        recorder = Recorder(given.output)
        recorder.record_functions(
            given.modules, exclude=given.exclude, standard_library=given.stdlib, c_functions=given.c_functions
        )
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"annals_trace: {error}")
    sys.argv = command
    try:
        if given.module:
            sys.path.insert(0, "")
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        else:
            # Like Python itself, which finds modules next to a script.
            sys.path[0] = str(Path(command[0]).resolve().parent)
            runpy.run_path(command[0], run_name="__main__")
    finally:
        recorder.stop_functions()


if __name__ == "__main__":
    main()
