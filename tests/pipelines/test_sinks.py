"""Sinks: what is published reaches them, once, whatever ends a run."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines.catalog import PipelineCatalog
from headrace.tables.version_folders import VersionFolders
from tests.pipelines.project import Project, dies, states
from tests.pipelines.test_inputs import HEAD, ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    return Project.new(tmp_path / "project", spark)


SINKS = (
    HEAD
    + """
def read():
    return spark.readStream.schema("id INT").json("in")

dp.create_sink("files", "json", {"path": "out"})
dp.create_sink("table", "csv", {"path": "table", "header": "true"})
dp.create_sink("shown", "console")

@dp.append_flow(target="files")
def one():
    return read()

@dp.append_flow(target="files")
def ten():
    return read().select((F.col("id") * 10).alias("id"))

@dp.append_flow(target="table")
def csv():
    return read()

@dp.append_flow(target="shown")
def seen():
    return read().select(F.concat(F.lit("row "), "id").alias("text"))
"""
)


def written(project: Project, folder: str) -> Counter[int]:
    texts = [file.read_text() for file in (project.root / folder).glob("*part-*")]
    lines = [line for text in texts for line in text.splitlines() if line != "id"]
    return Counter(json.loads(line)["id"] if line.startswith("{") else int(line) for line in lines)


def test_sinks_get_each_row_once(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("a.py", SINKS)
    project.add("in", 1, ids(1))
    report = project.run()
    assert states(report).keys() == {"files", "table", "shown"}
    assert written(project, "out") == Counter([1, 10])
    assert "row 1" in capsys.readouterr().out

    # A run that dies before it is published, and one that dies while it delivers.
    for number, place in ((2, (PipelineCatalog, "commit")), (3, (VersionFolders, "point"))):
        with monkeypatch.context() as patch:
            patch.setattr(*place, dies)
            project.add("in", number, ids(number))
            with pytest.raises(KeyboardInterrupt):
                project.run()
        assert written(project, "out") == Counter([1, 10])
    real, moved = os.replace, 0

    def replace(source: Any, target: Any) -> None:
        nonlocal moved
        moved += "part-" in str(target)
        if moved == 2:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            project.run()
    project.run()
    assert written(project, "out") == Counter([1, 2, 3, 10, 20, 30])
    assert written(project, "table") == Counter([1, 2, 3])
    assert "row 3" in capsys.readouterr().out
    before = set((project.root / "out").iterdir())
    project.run()
    assert set((project.root / "out").iterdir()) == before
    assert not list((project.root / "storage/tables/default/files").iterdir())


def test_a_sink_that_cannot_be_reached_gets_its_rows_later(project: Project) -> None:
    project.write("a.py", SINKS)
    project.add("in", 1, ids(1))
    (project.root / "out").write_text("in the way")
    report = project.run()
    assert states(report) == {"files": "FAILED", "table": "COMPLETED", "shown": "COMPLETED"}
    (project.root / "out").unlink()
    project.add("in", 2, ids(2))
    assert set(states(project.run()).values()) == {"COMPLETED"}
    assert written(project, "out") == Counter([1, 2, 10, 20])
