"""Uses a wheel as people do who have nothing else: ``python fresh.py WHEEL DIRECTORY PYTHON…``.

Each of the Pythons gets a virtual environment with the wheel alone, which runs ``plain.py`` there. The first Python also gets one
for each library that reads tables, with the wheel and that library; runs the Python blocks of the README; and links a program in C
(`cc`). DIRECTORY keeps the environments with libraries for the next time. The pip is that of the Python that runs this script.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: What the demo compresses.
TEXTS = ROOT / "viewer-cli" / "book" / "src"
LIBRARIES = ("polars", "duckdb", "pyarrow", "pandas")
#: How each library reads a table, and then the number of rows and the sum of the column.
READERS = {
    "polars": "import polars; d = polars.DataFrame(t); rows, total = d.height, d['exclusive_ns'].sum()",
    "duckdb": "import duckdb; rows, total = duckdb.sql('select count(*), sum(exclusive_ns) from t').fetchall()[0]",
    "pyarrow": "import pyarrow, pyarrow.compute as c; d = pyarrow.table(t); rows, total = d.num_rows, c.sum(d['exclusive_ns']).as_py()",
    "pandas": "d = t.to_pandas(); rows, total = len(d), d['exclusive_ns'].sum()",
}
#: Uses the wheel's library from C.
PROGRAM = """
#include <annals.h>
int main(void) {
    annals_recorder recorder;
    annals_region region;
    return annals_start(NULL, 0, ANNALS_ENVIRONMENT_IGNORED, &recorder) || annals_add_region(recorder, "region", &region)
        || annals_enter(region) || annals_leave(region) || annals_finish(recorder, NULL);
}
"""


def run(*command: object, **settings: object) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Nothing but the environment's own packages, and no recorder.
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANNALS_", "LD_PRELOAD"))},
        **settings,
    )
    if done.returncode != 0:
        sys.exit(f"fresh.py: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(python: str, directory: Path, wheel: Path, *libraries: str) -> Path:
    """Returns the Python of a virtual environment with the wheel and the libraries; the wheel is installed again."""
    inside = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--no-deps", "--force-reinstall"]
    if libraries and not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        run(python, "-m", "venv", "--without-pip", directory)
        run(sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", *libraries)
        (directory / "complete").touch()
    elif not libraries:
        shutil.rmtree(directory, ignore_errors=True)
        run(python, "-m", "venv", "--without-pip", directory)
    run(*pip, wheel)
    return inside


def installed(python: Path) -> set[str]:
    code = "import importlib.metadata as m; print(*{d.metadata['Name'].lower() for d in m.distributions()})"
    return set(run(python, "-c", code).split())


def use_alone(python: str, directory: Path, wheel: Path) -> None:
    """Uses the wheel where nothing else is installed."""
    inside = environment(python, directory / "alone", wheel)
    version = run(inside, "-c", "import platform; print(platform.python_version())").strip()
    assert installed(inside) == {"annals-trace"}, installed(inside)
    work = directory / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    printed = run(inside, HERE / "plain.py", TEXTS, work, cwd=work).strip()
    print(f"Python {version}: {printed}; imported in {import_ms(inside):.0f} ms")
    shutil.rmtree(work)


def import_ms(python: Path) -> float:
    """Returns how long ``import annals_trace`` takes when files are in memory: the median of some processes."""
    code = "import time; t = time.perf_counter(); import annals_trace; print((time.perf_counter() - t) * 1e3)"
    return statistics.median(float(run(python, "-c", code)) for _ in range(5))


def use_with_libraries(python: str, directory: Path, wheel: Path) -> None:
    """Reads calls by each library alone, and compares them with what ``trace-cli`` prints."""
    demo = directory / "demo"
    shutil.rmtree(demo, ignore_errors=True)
    for library in LIBRARIES:
        inside = environment(python, directory / library, wheel, library)
        others = installed(inside) & set(LIBRARIES) - {library}
        assert not others, f"{library} needs {others}: it is not alone"
        trace_cli = inside.parent / "trace-cli"
        if not demo.exists():
            run(trace_cli, "demo", "--output", demo, TEXTS)
        trace = demo / "run.annals"
        regions = json.loads(run(trace_cli, "regions", trace, "--json"))["regions"]
        expected = (
            sum(region["calls"] for region in regions),
            sum(region["exclusive_ns"] for region in regions),
        )
        assert expected[0] > 0 and expected[1] > 0, regions
        code = f"import sys, annals_trace\nt = annals_trace.open(sys.argv[1]).calls()\n{READERS[library]}\nprint(rows, int(total))"
        found = tuple(map(int, run(inside, "-c", code, trace).split()))
        assert found == expected, f"{library} reads {found} calls and ns; trace-cli regions: {expected}"
        print(f"{library} alone: {found[0]:,} calls and {found[1]:,} ns like trace-cli regions")


def blocks(page: Path) -> list[str]:
    """Returns the blocks of a page that are in Python."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def use_readme(directory: Path) -> None:
    """Runs the Python blocks of the README: those that import no other library with the wheel alone."""
    found = blocks(ROOT / "README.md")
    assert found, "the README has no lines in Python"
    work = directory / "readme"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copy(directory / "demo" / "run.annals", work / "run.annals")
    for block in found:
        imported = [library for library in LIBRARIES if re.search(rf"^import .*\b{library}\b", re.sub("#.*", "", block), re.MULTILINE)]
        inside = directory / (imported[0] if imported else "alone") / "bin" / "python"
        run(inside, "-c", block, cwd=work)
    print(f"README: {len(found)} blocks run")


def use_from_c(directory: Path) -> None:
    """Links a program in C with the wheel's library, and runs it."""
    inside = directory / "alone" / "bin" / "python"
    code = "import annals_trace as a; print(a.include(), a.library('libannals.so'), sep='\\n')"
    include, library = map(Path, run(inside, "-c", code).split("\n")[:2])
    work = directory / "c"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "program.c").write_text(PROGRAM)
    where = ["-I", include, "-L", library.parent, f"-Wl,-rpath,{library.parent}"]
    run("cc", "program.c", "-o", "program", *where, "-lannals", cwd=work)
    run(work / "program", cwd=work)
    code = "import annals_trace; print(annals_trace.open('annals-run').calls().count())"
    assert run(inside, "-c", code, cwd=work).strip() == "1"
    print("C: a program is linked with the wheel's library, and records")


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit("usage: fresh.py WHEEL DIRECTORY PYTHON…")
    wheel, directory, *pythons = sys.argv[1:]
    wheel, directory = Path(wheel).resolve(), Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    # The last one is what the README's lines find.
    for python in reversed(pythons):
        use_alone(python, directory, wheel)
    use_with_libraries(pythons[0], directory, wheel)
    use_readme(directory)
    use_from_c(directory)


if __name__ == "__main__":
    main()
