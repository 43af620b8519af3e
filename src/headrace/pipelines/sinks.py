"""Sinks of a pipeline: the rows of streams, handed on to what is outside once their run is published.

A run writes the rows beside the tables. When the catalogue names them they are delivered, and then removed:
so a run that dies delivers nothing, and what was published and not delivered is delivered by the next one.
Files are moved one by one, each by a rename, so each comes exactly once. Other formats get the rows of a run
at least once.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.io.delivery.atomic_files import remove_folder, sync_folder
from headrace.path_or_url import local_path
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.changelog_delivery import ChangelogDelivery, check_changelog
from headrace.pipelines.definitions import CHANGELOG, DELTA, Kind
from headrace.pipelines.delta_delivery import DeltaPublisher, check_delta
from headrace.pipelines.errors import BadDefinition
from headrace.pipelines.graph import Table
from headrace.pipelines.versions import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = frozenset({"parquet", "json", "csv", "orc", "text"})
"""Formats of sinks that are folders of files."""

CONSOLE = "console"


def check_sink(table: Table) -> None:
    """Raise `BadDefinition` for a table or sink that cannot be delivered."""
    dataset = table.dataset
    if DELTA in (dataset.format, dataset.delivery):
        check_delta(table)
    if dataset.delivery == CHANGELOG:
        check_changelog(table)
    if dataset.format in (*FILES, DELTA) and dataset.kind is Kind.SINK and "path" not in dataset.properties:
        raise BadDefinition(
            f"sink {dataset.name.table!r} has no path",
            where=[dataset.location],
            fix=f'dp.create_sink("{dataset.name.table}", "{dataset.format}", {{"path": "out"}})',
            dataset=str(dataset.name),
        )


def stage(catalog: Catalog, table: Table, rows: DataFrame) -> tuple[int, int]:
    """Write rows for a sink beside the tables; return the number of the version and how many they are.

    Without rows that is the version before.
    """
    before = catalog.entries.get(table.name)
    version = catalog.new_version(table.name)
    folder = catalog.rows(table.name, version)
    dataset = table.dataset
    rows = rows.persist()  # They are computed once, to be counted and to be written.
    try:
        count = rows.count()
        if not count:
            return (before.version if before else 0), 0
        if dataset.format in FILES:
            options = {key: value for key, value in dataset.properties.items() if key != "path"}
            save(rows.write.format(dataset.format).options(**options), folder)
        else:
            save(rows.write.format("parquet"), folder)
        return version, count
    finally:
        rows.unpersist()


def deliver(catalog: Catalog, table: Table, spark: SparkSession) -> None:
    """Hand on what was published and not delivered: rows for a sink, or a version of a table."""
    entry = catalog.published.get(table.name)
    delivery = table.dataset.delivery
    if delivery and entry is not None:
        folder = catalog.delivery_folder(catalog.storage, delivery, table.name)
        if delivery == DELTA:
            DeltaPublisher(catalog, table, spark, str(folder)).publish(entry)
        else:
            ChangelogDelivery(catalog, table, spark, folder).publish(entry)
    if table.dataset.kind is not Kind.SINK:
        return
    for version in catalog.versions_there(table.name):
        if entry is not None and version <= entry.version:
            _hand_on(catalog, table, version, spark)
            remove_folder(catalog.rows(table.name, version))


def _hand_on(catalog: Catalog, table: Table, version: int, spark: SparkSession) -> None:
    """Give a sink the rows that are staged for it."""
    folder, dataset = catalog.rows(table.name, version), table.dataset
    if dataset.format in FILES:
        _move_files(folder, Path(local_path(dataset.properties["path"], "sink")), version)
        return
    rows = spark.read.parquet(f"file:{folder}")  # The query may have other columns since.
    if dataset.format == DELTA:
        DeltaPublisher(catalog, table, spark, dataset.properties["path"]).append(rows, folder)
    elif dataset.format == CONSOLE:
        rows.show(int(dataset.properties.get("numRows", "20")), truncate=False)
    else:
        rows.write.format(dataset.format).options(**dataset.properties).mode("append").save()


def _move_files(folder: Path, target: Path, version: int) -> None:
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        at = target / file.relative_to(folder).parent / f"{version}-{file.name}"
        at.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.replace(file, at)
        except OSError:  # on another file system
            aside = at.with_name(f".{at.name}.tmp")
            shutil.copy2(file, aside)
            os.replace(aside, at)
            file.unlink()
        sync_folder(at.parent)
