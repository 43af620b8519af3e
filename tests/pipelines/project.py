"""A pipeline project in a folder of its own, and what its tables hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.definitions import Place, Policy, TableName
from headrace.pipelines.pipeline_run import Event, RunReport, Selection, run_pipeline
from headrace.pipelines.run_recorder import RunListener
from headrace.pipelines.spec import PipelineSpec, read_spec
from headrace.pipelines.update_workers import CONCURRENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = "name: tested\nstorage: storage\nlibraries: [{glob: {include: transformations/**}}]\n"


@dataclass(frozen=True)
class Project:
    root: Path
    spark: SparkSession
    storage: str = "storage"
    place: Place = Place.AUTO
    side_by_side: int = 1

    @property
    def by_spark(self) -> Project:
        """The same project, of which all tables are refreshed by Spark."""
        return replace(self, place=Place.SPARK)

    @classmethod
    def new(cls, root: Path, spark: SparkSession, **files: str) -> Project:
        made = cls(root, spark)
        (root / "transformations").mkdir(parents=True)
        (root / "spark-pipeline.yml").write_text(SPEC)
        for name, text in files.items():
            made.write(name.replace("_sql", ".sql").replace("_py", ".py"), text)
        return made

    @property
    def spec(self) -> PipelineSpec:
        spec = read_spec(self.root / "spark-pipeline.yml")
        # One table after another, unless a test says otherwise: the order of events is known.
        return replace(spec, configuration={CONCURRENT: str(self.side_by_side), **spec.configuration})

    def write(self, name: str, text: str) -> None:
        (self.root / "transformations" / name).write_text(text)

    def add(self, folder: str, number: int | str, rows: Iterable[dict[str, Any]]) -> Path:
        """Add a file of JSON lines to a folder of input."""
        file = self.root / folder / f"{number}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def run(
        self,
        *refresh: str,
        full: Iterable[str] = (),
        policy: Policy | None = None,
        listeners: Sequence[RunListener] = (),
        place: Place | None = None,
    ) -> RunReport:
        selection = Selection(refresh, tuple(full))
        return run_pipeline(
            self.spec,
            self.spark,
            selection,
            policy=policy,
            listeners=listeners,
            place=place or self.place,
        )

    def path(self, table: str) -> Path:
        return self.root / self.storage / "catalog/current/default" / table

    def rows_of_lists(self, table: str) -> list[tuple[Any, ...]]:
        """Return the published rows of a table that holds lists, sorted."""
        import duckdb

        return sorted(duckdb.sql(f"SELECT * FROM read_parquet('{self.path(table)}/*.parquet')").fetchall())

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """Return the published rows of a table, as another reader of Parquet sees them."""
        import duckdb

        files = f"{self.path(table)}/**/*.parquet"
        return Counter(duckdb.sql(f"SELECT * FROM read_parquet('{files}')").fetchall())


def one_by_one(project: Project) -> None:
    """Let runs of commands refresh one table after another, too."""
    with (project.root / "spark-pipeline.yml").open("a") as file:
        file.write(f'configuration: {{{CONCURRENT}: "1"}}\n')


def dies(*_: object) -> None:
    """Stand for a step of a run that is killed before it."""
    raise KeyboardInterrupt


def event(report: RunReport, table: str) -> Event:
    return report.events[TableName("default", table)]


def rows_read(report: RunReport, table: str) -> int | None:
    updated = event(report, table).updated
    assert updated is not None
    return updated.rows_in


def states(report: RunReport) -> dict[str, str]:
    return {name.table: each.state.value for name, each in report.events.items()}


def methods(report: RunReport) -> dict[str, str]:
    return {
        name.table: each.updated.method.value
        for name, each in report.events.items()
        if each.updated is not None
    }


def changed(report: RunReport) -> set[str]:
    return {name.table for name, each in report.events.items() if each.changed}
