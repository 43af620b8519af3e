"""Tables with a key for tests, and files of what sets and deletes their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace import io
from tests.io.feeds import write


class Customer(NamedTuple):
    id: int
    name: str
    city: str | None


class Dated(NamedTuple):
    shop: str
    item: int
    price: int
    at: int


ANN, BOB, AMY = Customer(1, "ann", "Rome"), Customer(2, "bob", None), Customer(1, "amy", "Rome")


def customers(**options: Any) -> hr.Flow:
    flow = hr.Flow("customers")
    flow.sink("out", flow.table("customers", Customer, key="id", **options))
    return flow


def prices(**options: Any) -> hr.Flow:
    flow = hr.Flow("prices")
    flow.sink("out", flow.table("prices", Dated, key=["shop", "item"], sequence="at", **options))
    return flow


def weights(flow: hr.Flow, *ticks: Any) -> list[list[Any]]:
    engine, (source,) = hr.Engine(flow), flow.graph().sources
    return [sorted(engine.tick(**{source: tick})["out"].raw) for tick in ticks]


class Tagged(NamedTuple):
    id: int
    tags: dict[str, float]


def tagged() -> hr.Flow:
    flow = hr.Flow("tagged")
    flow.sink("out", flow.table("tagged", Tagged, key="id"))
    return flow


def json_lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def envelope(op: str, before: Any, after: Any) -> Any:
    return {"before": before, "after": after, "op": op}


def upserted(key: int | None, value: Any) -> Any:
    return {"key": {"id": key}, "value": value}


KEY_ALONE = {"id": 2, "name": None, "city": None}

ROWS = {
    "rows": lambda at: io.JsonFiles(at),
    "weights": lambda at: io.CsvFiles(at),
    "operations": lambda at: io.Operations(io.CsvFiles(at), "op", ["I", "U"], "D", ignore="?"),
    "envelopes": lambda at: io.Debezium(io.JsonFiles(at)),
    "delta": lambda at: io.DeltaChanges(io.ParquetFiles(at)),
    "upserts": lambda at: io.Upserts(io.JsonFiles(at)),
}

ENVELOPES = [
    envelope("r", None, BOB._asdict()),
    envelope("c", None, ANN._asdict()),
    envelope("c", None, ANN._asdict()),
    envelope("u", None, AMY._asdict()),
    envelope("u", {"id": 1}, AMY._asdict()),
    envelope("u", AMY._asdict(), AMY._replace(id=3)._asdict()),
    envelope("d", KEY_ALONE, None),
    None,
]

OPERATIONS = (
    "id,name,city,op\n2,bob,,I\n1,ann,Rome,I\n1,amy,Rome,U\n3,amy,Rome,I\n1,,,D\n2,bob,,D\n2,bob,,D\n9,,,?\n"
)


UPSERTS = [
    upserted(1, ANN._asdict()),
    upserted(2, {"name": "bob"}),
    upserted(1, {"name": "amy", "city": "Rome"}),
    upserted(2, None),
    {"key": {"id": 9}},
    upserted(3, AMY._replace(id=3)._asdict()),
]


def written(form: str, folder: Path) -> Any:
    """A source of files of one form, and which rows they leave."""
    if form == "delta":
        folder.mkdir()
        kinds = ["insert", "insert", "update_preimage", "update_postimage", "delete", "insert"]
        rows = [ANN, BOB, ANN, AMY, BOB, AMY._replace(id=3)]
        named = [{**row._asdict(), "_change_type": kind} for row, kind in zip(rows, kinds, strict=True)]
        pq.write_table(pa.Table.from_pylist(named), folder / "1.parquet")
        return ROWS[form](folder), [AMY, AMY._replace(id=3)]
    if form == "rows":
        write(folder / "1.json", json_lines([r._asdict() for r in (ANN, BOB, AMY, AMY)]))
        write(folder / "2.json", json_lines([r._asdict() for r in (BOB, AMY)]))
        return ROWS[form](folder), [AMY, BOB]
    if form == "weights":
        rows = "id,name,city,weight\n1,ann,Rome,1\n2,bob,,\n1,amy,Rome,1\n2,,,-1\n9,,,-1\n"
        write(folder / "1.csv", rows)
        return ROWS[form](folder), [AMY]
    if form == "upserts":
        write(folder / "1.json", json_lines(UPSERTS))
        return ROWS[form](folder), [AMY, AMY._replace(id=3)]
    if form == "operations":
        write(folder / "1.csv", OPERATIONS)
        return ROWS[form](folder), [AMY._replace(id=3)]
    write(folder / "1.json", json_lines(ENVELOPES))
    return ROWS[form](folder), [AMY._replace(id=3)]


def delta_file(at: Path, *changes: tuple[str, Any]) -> io.DeltaChanges:
    """Write an exported change data feed: the type of each change, and its row."""
    at.parent.mkdir(exist_ok=True)
    named = [{**row._asdict(), "_change_type": kind} for kind, row in changes]
    columns = pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("_change_type", pa.string())]
    )
    pq.write_table(pa.Table.from_pylist(named, columns), at)
    return io.DeltaChanges(io.ParquetFiles(at.parent))


class Versioned(NamedTuple):
    id: int
    name: str
    version: int | None


def versioned() -> hr.Flow:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Versioned, key="id", sequence="version"))
    return flow
