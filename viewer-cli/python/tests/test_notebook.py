"""What notebooks show."""

from __future__ import annotations

import xml.etree.ElementTree
from pathlib import Path

import pytest
from conftest import run_python

import annals_trace


def test_summary_picture_and_report(demo: Path, tmp_path: Path) -> None:
    trace = annals_trace.open(demo)
    page = trace._repr_html_()
    xml.etree.ElementTree.fromstring(page)
    assert "<script" not in page
    picture = trace.timeline(start="10ms", end="20ms")
    assert xml.etree.ElementTree.fromstring(picture._repr_svg_()).tag.endswith("svg")
    picture.save(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text() == str(picture)
    report = trace.report()
    assert "<html" in str(report)
    shown = report._repr_html_()
    assert shown.startswith("<iframe sandbox ") and shown.count("<") == 2, "a page cannot leave its frame"
    report.save(tmp_path / "report.html")
    with pytest.raises(RuntimeError, match="timeline"):
        trace.timeline(start="5s", end="1s")


def test_names_are_escaped(tmp_path: Path) -> None:
    directory = tmp_path / "<b onclick=alert(1)>"
    done = run_python(
        "import annals_trace, sys\n"
        "with annals_trace.Recorder(sys.argv[1]) as recorder, recorder.region('<script>alert(1)</script>'): pass\n",
        directory,
    )
    assert done.returncode == 0, done.stderr
    page = annals_trace.open(directory)._repr_html_()
    assert "<b " not in page and "&lt;b " in page
