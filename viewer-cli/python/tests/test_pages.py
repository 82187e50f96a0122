"""The manual's chapter and its notebook run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

import annals_trace

ROOT = Path(__file__).resolve().parents[3]
BOOK = ROOT / "viewer-cli" / "book" / "src"


def run_blocks(page: str, least: int, name: str) -> None:
    """Runs the Python of a page, as the module `name`."""
    text = (BOOK / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= least
    names: dict[str, object] = {"__name__": name}
    for block in blocks:
        exec(compile("import annals_trace\n" + block, page, "exec"), names)


def test_every_block_about_many_machines_runs(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(demo, tmp_path / "heat")
    monkeypatch.chdir(tmp_path)
    run_blocks("many-machines.md", 4, "__main__")
    printed = capsys.readouterr().out
    assert "slices=4" in printed
    assert "'events': " in printed
    assert (tmp_path / "heat-dataset" / "calls" / "rank=1").is_dir()


def test_the_makefile_merges_recordings_with_losses(demo: Path, tmp_path: Path) -> None:
    text = (BOOK / "many-machines.md").read_text(encoding="utf-8")
    (makefile,) = re.findall(r"^```make\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "Makefile").write_text(makefile)
    (tmp_path / "heat").mkdir()
    for recording in demo.parent.glob("demo-*.annals"):
        shutil.copy(recording, tmp_path / "heat")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "trace-merge").symlink_to(annals_trace.executable())
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    made = subprocess.run(["make", "-j", "2", "made.annals"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    # The join's exit code 3 is the only one that make reports.
    assert re.findall(r"\*\*\* \[(.*)\] (.*)", made.stderr) == [("Makefile:6: made.annals", "Error 3")], made.stderr
    assert (tmp_path / "made.annals").exists()


def test_the_tables_of_the_cost_model_are_what_its_program_prints(tmp_path: Path) -> None:
    page, model = BOOK / "cost-model.md", ROOT / "benches" / "cost_model.py"
    copy = tmp_path / "page.md"
    copy.write_text(re.sub(r"^(\| .*\n)+", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8")
    updated = subprocess.run([sys.executable, model, "--update", copy], capture_output=True, text=True)
    assert updated.returncode == 0, updated.stderr
    assert copy.read_text(encoding="utf-8") == page.read_text(encoding="utf-8"), f"run {model} --update {page}"
    # The command of the page prints one of them.
    (command,) = re.findall(r"^python3 benches/cost_model\.py (--ranks .*)$", copy.read_text(encoding="utf-8"), re.MULTILINE)
    printed = subprocess.run([sys.executable, model, *command.split()], capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.split("\n\n")[1].strip() in page.read_text(encoding="utf-8")


def test_every_block_of_the_chapter_runs(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(demo, tmp_path / "run.annals")
    monkeypatch.chdir(tmp_path)
    run_blocks("python.md", 5, "chapter")
    assert (tmp_path / "timeline.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with annals_trace.open("python-run") as recorded:
        assert recorded.calls(regions="sweep").count() == 100
        assert recorded.events("request").count() == 100
        assert recorded.metrics().count() == 100


def test_the_notebook_runs_and_shows_the_trace() -> None:
    notebook = nbformat.read(BOOK / "python.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is stored without outputs"
    # There, the demo has enough to compress that its last rank drops events.
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(BOOK)}}).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert ": see losses()" in shown[0]["text/html"], "the demo drops events"
    assert any("compress" in data.get("text/html", "") for data in shown[1:])
    assert any(data.get("image/svg+xml", "").startswith("<svg") for data in shown)
