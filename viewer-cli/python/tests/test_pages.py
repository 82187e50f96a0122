"""The manual's chapter and its notebook run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

BOOK = Path(__file__).resolve().parents[3] / "viewer-cli" / "book" / "src"


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


def test_every_block_of_the_chapter_runs(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(demo, tmp_path / "run.annals")
    monkeypatch.chdir(tmp_path)
    run_blocks("python.md", 5, "chapter")
    assert (tmp_path / "timeline.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    import annals_trace

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
