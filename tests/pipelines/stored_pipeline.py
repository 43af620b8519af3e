"""A pipeline's storage made by hand, as runs leave it: without Spark, and without a project's queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.event_log import EventLog, EventRecord, Retention, timestamp
from headrace.pipelines.spec import PipelineSpec, read_spec

SPEC = "name: by hand\nstorage: storage\nlibraries: [{glob: {include: transformations/**}}]\n"


def name_of(table: str) -> TableName:
    return TableName("default", table)


@dataclass
class StoredPipeline:
    """Storage of a pipeline. files: the tables that have been written, by their number."""

    root: Path
    files: dict[int, pa.Table] = field(default_factory=dict[int, pa.Table])
    runs: int = 0

    def __post_init__(self) -> None:
        (self.root / "transformations").mkdir(parents=True, exist_ok=True)
        (self.root / "spark-pipeline.yml").write_text(SPEC)

    @property
    def spec(self) -> PipelineSpec:
        return read_spec(self.root / "spark-pipeline.yml")

    @property
    def storage(self) -> Path:
        return self.root / "storage"

    @property
    def entries(self) -> Mapping[TableName, TableEntry]:
        return PipelineCatalog.last_entries(self.storage)

    def run(
        self,
        tables: Mapping[str, Sequence[pa.Table]],
        *,
        reads: Mapping[str, Mapping[str, Any]] | None = None,
        failed: Mapping[str, Mapping[str, int]] | None = None,
        records: Sequence[EventRecord] = (),
        ends: bool = True,
    ) -> None:
        """Publish a version of each table that consists of some files; equal objects are the same file.

        reads: positions of the inputs of each table. failed: rows by expectation, of tables beside others.
        records: further ones, without run and time.
        """
        with PipelineCatalog.open(self.storage, None) as catalog:
            self.runs = catalog.run
            before, entries = dict(catalog.entries), dict(catalog.entries)
            for table, files in tables.items():
                name = name_of(table)
                entry = self._write(catalog, name, files)
                positions = {table: dict((reads or {}).get(table, {}))}
                counts = dict((failed or {}).get(table, {}))
                entries[name] = replace(entry, positions=positions, failed=counts)
            done = [
                EventRecord("table", table_name=str(name), state="COMPLETED", method="incremental",
                            rows=entry.rows, rows_inserted=entry.rows, version_after=entry.version,
                            version_before=before[name].version if name in before else 0)
                for name, entry in entries.items()
                if name.table in tables
            ]  # fmt: skip
            catalog.commit(entries, entries)
        others = {each.table_name for each in records}
        self.log([each for each in done if each.table_name not in others] + [*records], ends=ends)

    def _write(self, catalog: PipelineCatalog, name: TableName, files: Sequence[pa.Table]) -> TableEntry:
        version = catalog.new_version(name)
        folder = catalog.rows(name).folder(version)
        folder.mkdir(parents=True)
        for file in files:
            self.files[id(file)] = file
            pq.write_table(file, folder / f"{id(file)}.parquet", row_group_size=1_000)
        schema: Any = from_arrow_schema(files[0].schema)
        return TableEntry(version, sum(map(len, files)), schema.json(), "parquet", "by hand")

    def log(self, records: Sequence[EventRecord], *, ends: bool = True) -> None:
        """Append the records of a run."""
        now = timestamp(datetime.now(UTC))
        run = EventRecord("run", self.runs, f"id {self.runs}", now, state="RUNNING")
        own = [replace(each, run=self.runs, run_id=run.run_id, at=each.at or now) for each in records]
        state = "FAILED" if any(each.state == "FAILED" for each in records) else "COMPLETED"
        errors = "\n".join(each.error for each in records if each.error)
        writer = EventLog(self.storage).writer(datetime.now(UTC), Retention())
        writer.append(run, *own, *([replace(run, state=state, error=errors)] if ends else []))
        writer.close()
