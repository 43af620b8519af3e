"""Sources of rows and sinks for changes, one file per external system.

All are frozen data, shared by both engines. Nothing here imports an engine, and nothing heavy is imported
before a source or sink is opened.
"""

from typing import TYPE_CHECKING, Any

from headrace.errors import did_you_mean
from headrace.io.change_data import ChangeData, Debezium, DeltaChanges, Operations, Upserts
from headrace.io.delta import DeltaChangelog, DeltaRows, DeltaTable
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.csv_files import CsvFiles
from headrace.io.files.json_files import JsonFiles
from headrace.io.files.parquet_files import ParquetFiles
from headrace.io.files.table_files import TableFiles
from headrace.io.in_process import Call, Memory, Print, Rows, TickTime, WallClock
from headrace.io.kafka import Kafka, KafkaTopic
from headrace.io.keyed_tables import HeldBack
from headrace.io.postgres import PostgresChangelog, PostgresTable
from headrace.io.sink import SinkRequest, SinkTarget, Writer, open_sink
from headrace.io.source import (
    DONE,
    BadRecord,
    Batch,
    Feed,
    Guarantee,
    Reader,
    Source,
    guarantee_of,
    open_source,
)
from headrace.io.uri import parse_sink, parse_source

if TYPE_CHECKING:
    from headrace.io.pull_streams import rows_of


def __getattr__(name: str) -> Any:
    # Tasks on Spark import this package, but need no pull-streams.
    if name == "rows_of":
        from headrace.io.pull_streams import rows_of

        return rows_of
    guess = did_you_mean(name, __all__)
    raise AttributeError(f"module 'headrace.io' has no attribute {name!r}{guess and f'; {guess}'}")


__all__ = [
    "DONE",
    "BadRecord",
    "Batch",
    "Call",
    "ChangeData",
    "Changelog",
    "CsvChangelog",
    "CsvDialect",
    "CsvFiles",
    "Debezium",
    "DeltaChangelog",
    "DeltaChanges",
    "DeltaRows",
    "DeltaTable",
    "Feed",
    "Guarantee",
    "HeldBack",
    "JsonFiles",
    "Kafka",
    "KafkaTopic",
    "Memory",
    "Operations",
    "ParquetFiles",
    "PostgresChangelog",
    "PostgresTable",
    "Print",
    "Reader",
    "Rows",
    "SinkRequest",
    "SinkTarget",
    "Source",
    "TableFiles",
    "TickTime",
    "Upserts",
    "WallClock",
    "Writer",
    "guarantee_of",
    "open_sink",
    "open_source",
    "parse_sink",
    "parse_source",
    "rows_of",
]
