"""Tables held by key: what sets and deletes their rows, in Python and in files, on both engines."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import io
from penstock.errors import BadInput, BadRow, RecordMisfit, UnknownColumn, WrongType
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


def customers(**options: Any) -> ps.Flow:
    flow = ps.Flow("customers")
    flow.sink("out", flow.table("customers", Customer, key="id", **options))
    return flow


def prices(**options: Any) -> ps.Flow:
    flow = ps.Flow("prices")
    flow.sink("out", flow.table("prices", Dated, key=["shop", "item"], sequence="at", **options))
    return flow


def weights(flow: ps.Flow, *ticks: Any) -> list[list[Any]]:
    engine, (source,) = ps.Engine(flow), flow.graph().sources
    return [sorted(engine.tick(**{source: tick})["out"].raw) for tick in ticks]


def test_a_row_sets_the_row_of_its_key() -> None:
    assert weights(customers(), [ANN, ps.insert(BOB)], [AMY, AMY], [AMY]) == [
        [(*ANN, 1), (*BOB, 1)],
        [(*AMY, 1), (*ANN, -1)],
        [],
    ]


def test_a_deletion_needs_no_more_than_the_key() -> None:
    ticks = [ANN, BOB], [ps.delete_key(2), ps.delete_key(2), ps.delete_key(9)], [ps.delete(ANN)]
    assert weights(customers(), *ticks)[1:] == [[(*BOB, -1)], [(*ANN, -1)]]


def test_an_update_may_move_a_row_to_another_key() -> None:
    moved = ANN._replace(id=7)
    assert weights(customers(), [ANN], [ps.update(ANN, moved)])[1] == [(*ANN, -1), (*moved, 1)]


def test_a_frame_sets_its_rows() -> None:
    table = pa.table({"id": [1, 2], "name": ["ann", "bob"], "city": ["Rome", None]})
    assert weights(customers(), table) == [[(*ANN, 1), (*BOB, 1)]]


def test_an_update_that_does_not_fit_is_found() -> None:
    engine = ps.Engine(customers())
    engine.tick(customers=[ANN])
    with pytest.raises(RecordMisfit, match="it replaces"):
        engine.tick(customers=[ps.update(ANN._replace(name="ana"), AMY)])


def test_an_update_that_does_not_fit_is_trusted() -> None:
    flow = customers(on_misfit="trust_key")
    assert weights(flow, [ANN], [ps.update(ANN._replace(name="ana"), AMY)])[1] == [(*AMY, 1), (*ANN, -1)]


class Tagged(NamedTuple):
    id: int
    tags: dict[str, float]


def tagged() -> ps.Flow:
    flow = ps.Flow("tagged")
    flow.sink("out", flow.table("tagged", Tagged, key="id"))
    return flow


def test_maps_before_a_change_have_no_order() -> None:
    held, same = Tagged(1, {"a": 0.0, "b": 1.0}), Tagged(1, {"b": 1.0, "a": -0.0})
    engine = ps.Engine(tagged())
    engine.tick(tagged=[held])
    assert list(engine.tick(tagged=[same])["out"]) == []
    assert list(engine.tick(tagged=[ps.update(same, Tagged(1, {})), ps.delete(Tagged(1, {}))])["out"]) == [
        ps.delete(held)
    ]


def test_misfits_are_set_aside() -> None:
    flow = ps.Flow("customers")
    held = flow.table("customers", Customer, key="id", on_misfit="dead_letter")
    flow.sink("out", held)
    flow.sink("misfits", held.misfits().select("key", "row"))
    engine = ps.Engine(flow)
    engine.tick(customers=[ANN])
    made = engine.tick(customers=[ps.delete(ANN._replace(name="ana")), ps.update(BOB, BOB)])
    assert made["out"].raw == []
    assert made["misfits"].raw == [((1,), None, 1), ((2,), tuple(BOB), 1)]


@pytest.mark.parametrize(
    ("on_misfit", "left", "misfits"),
    [("dead_letter", [(1, "bob"), (2, "ann")], [(2,)]), ("trust_key", [(1, "bob")], [])],
)
def test_the_halves_of_rows_that_exchange_keys_are_applied_one_by_one(
    on_misfit: Any, left: list[Any], misfits: list[Any]
) -> None:
    flow = ps.Flow("customers")
    held = flow.table("customers", Customer, key="id", on_misfit=on_misfit)
    flow.sink("out", held)
    if misfits:
        flow.sink("misfits", held.misfits().select("key"))
    engine, shown = ps.Engine(flow), Counter[Any]()
    moves = [ps.update(ANN, ANN._replace(id=2)), ps.update(BOB, BOB._replace(id=1))]
    for tick in [ANN, BOB], moves:
        made = engine.tick(customers=tick)
        for id, name, _, weight in made["out"].raw:
            shown[id, name] += weight
    assert sorted(+shown) == left
    assert [key for key, _ in made["misfits"].raw] == misfits if misfits else True


def test_misfits_have_the_columns_of_records() -> None:
    held = ps.Flow("f").table("prices", Dated, key=["shop", "item"], sequence="at", on_misfit="dead_letter")
    assert held.misfits().schema.names == ("key", "before", "row", "sequence", "place", "misfit")


def test_rows_with_a_sequence_come_in_any_order() -> None:
    new, old = Dated("a", 1, 30, 5), Dated("a", 1, 20, 4)
    key = ("a", 1)
    ticks = [new, old], [ps.delete_key(key, sequence=4)], [ps.delete_key(key, sequence=6), new], [old]
    assert weights(prices(), *ticks) == [[(*new, 1)], [], [(*new, -1)], []]


def test_a_deletion_with_the_sequence_of_its_row_deletes_it() -> None:
    row = Dated("a", 1, 30, 5)
    assert weights(prices(), [row], [ps.delete(row)], [row]) == [[(*row, 1)], [(*row, -1)], []]


@pytest.mark.parametrize(
    "given",
    [
        ps.delete_key((1, 2)),
        ps.delete_key("one"),
        ps.delete_key(None),
        ps.delete_key(1, sequence=3),
        ps.Change(ANN, 2),
        ps.insert(("1", "ann", None)),
        ps.update(ANN, ("x", "y", "z")),
        7,
    ],
)
def test_what_is_no_record_is_refused(given: Any) -> None:
    with pytest.raises(BadRow):
        weights(customers(), [given])


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"key": "nobody"}, UnknownColumn),
        ({"key": "id", "sequence": "nobody"}, UnknownColumn),
        ({"sequence": "id"}, WrongType),
        ({"key": ()}, WrongType),
        ({"key": "id", "on_misfit": "no"}, WrongType),
        ({"on_misfit": "trust_key"}, WrongType),
    ],
)
def test_columns_that_are_no_key_are_refused(columns: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ps.Flow("f").table("customers", Customer, **columns)


def test_bare_values_have_no_key() -> None:
    with pytest.raises(WrongType, match="table 'n' holds int64"):
        ps.Flow("f").table("n", int, key="value")


def test_the_columns_that_are_read_are_those_of_its_rows() -> None:
    assert ps.Engine(prices()).columns_read("prices") == set(Dated._fields)


def test_explain_shows_how_a_table_is_held() -> None:
    shown = " ".join(ps.explain(prices(on_misfit="trust_key")).split())
    assert "records by (shop, item), sequence at" in shown
    assert "on_misfit=trust_key" in shown
    assert "before" not in shown


# -- files ---------------------------------------------------------------------------------------


def json_lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def envelope(op: str, before: Any, after: Any) -> Any:
    return {"before": before, "after": after, "op": op}


KEY_ALONE = {"id": 2, "name": None, "city": None}
ROWS = {
    "rows": lambda at: io.JsonFiles(at),
    "weights": lambda at: io.CsvFiles(at),
    "operations": lambda at: io.Operations(io.CsvFiles(at), "op", ["I", "U"], "D", ignore="?"),
    "envelopes": lambda at: io.Debezium(io.JsonFiles(at)),
    "delta": lambda at: io.DeltaChanges(io.ParquetFiles(at)),
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
    if form == "operations":
        write(folder / "1.csv", OPERATIONS)
        return ROWS[form](folder), [AMY._replace(id=3)]
    write(folder / "1.json", json_lines(ENVELOPES))
    return ROWS[form](folder), [AMY._replace(id=3)]


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("tick_rows", [1, 3, 1000])
def test_files_set_and_delete_rows(form: str, tick_rows: int, tmp_path: Path) -> None:
    source, left = written(form, tmp_path / "in")
    memory = io.Memory()
    ps.run(customers(), {"customers": source}, {"out": memory}, tick_rows=tick_rows)
    assert sorted(memory.rows()) == left


def test_a_run_goes_on_with_the_rows_that_are_held(tmp_path: Path) -> None:
    source, checkpoint = io.JsonFiles(tmp_path / "in"), tmp_path / "checkpoint"
    changes: list[Any] = []
    for number, rows in enumerate(([ANN, BOB], [AMY, BOB])):
        write(tmp_path / "in" / f"{number}.json", json_lines([row._asdict() for row in rows]))
        ps.run(customers(), {"customers": source}, {"out": changes}, checkpoint=checkpoint)
    assert sorted(changes[2:]) == [ps.insert(AMY), ps.delete(ANN)]


@pytest.mark.parametrize(
    ("source", "record", "said"),
    [
        (io.JsonFiles, {"id": 1, "name": None, "city": None}, "name: expected str, found None"),
        (io.JsonFiles, {"name": "ann", "city": None}, "id"),
        (io.JsonFiles, None, "expected a row, found None"),
        (io.JsonFiles, {**AMY._asdict(), "weight": 2}, r"weight: .*sets \(1\) or deletes \(-1\).*, found 2"),
        (io.JsonFiles, {**AMY._asdict(), "weight": 0}, "weight: .*, found 0"),
        (io.JsonFiles, {**AMY._asdict(), "weight": "one"}, "weight: .*one"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("u", None, None), "after: it is null or missing"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("d", None, None), "needs the key of the row"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("t", None, None), "op: 't' is not one of"),
    ],
)
def test_records_that_cannot_be_read_have_a_place(
    source: Any, record: Any, said: str, tmp_path: Path
) -> None:
    write(tmp_path / "1.json", json_lines([record]))
    with pytest.raises(BadRow, match=said) as error:
        ps.run(customers(), {"customers": source(tmp_path)}, {"out": io.Memory()})
    assert (error.value.facts["row"], error.value.facts["line"]) == (1, 1)


def delta_file(at: Path, *changes: tuple[str, Any]) -> io.DeltaChanges:
    """Write an exported change data feed: the type of each change, and its row."""
    at.parent.mkdir(exist_ok=True)
    named = [{**row._asdict(), "_change_type": kind} for kind, row in changes]
    columns = pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("_change_type", pa.string())]
    )
    pq.write_table(pa.Table.from_pylist(named, columns), at)
    return io.DeltaChanges(io.ParquetFiles(at.parent))


@pytest.mark.parametrize("tick_rows", [1, 2, 1000])
def test_an_update_of_a_change_feed_moves_a_row(tmp_path: Path, tick_rows: int) -> None:
    moved = AMY._replace(id=3)
    source = delta_file(
        tmp_path / "1.parquet",
        ("insert", ANN),
        ("update_preimage", ANN),
        ("update_postimage", AMY),
        ("update_preimage", AMY),
        ("update_postimage", moved),
    )
    memory = io.Memory()
    ps.run(customers(), {"customers": source}, {"out": memory}, tick_rows=tick_rows)
    assert memory.rows() == [moved]


def test_a_run_goes_on_between_the_images_of_an_update(tmp_path: Path) -> None:
    moved, checkpoint = AMY._replace(id=3), tmp_path / "checkpoint"
    source = delta_file(
        tmp_path / "in" / "1.parquet",
        ("insert", ANN),
        ("update_preimage", ANN),
        ("update_postimage", moved),
    )
    changes: list[Any] = []

    def stop(_: ps.Progress) -> None:
        raise InterruptedError

    for on_tick in (stop, None):
        with suppress(InterruptedError):
            ps.run(
                customers(),
                {"customers": source},
                {"out": changes},
                tick_rows=2,
                on_tick=on_tick,
                checkpoint=checkpoint,
            )
    assert changes == [ps.insert(ANN), ps.delete(ANN), ps.insert(moved)]


def test_a_preimage_that_is_not_held_is_found(tmp_path: Path) -> None:
    ana = ANN._replace(name="ana")
    source = delta_file(
        tmp_path / "1.parquet", ("insert", ANN), ("update_preimage", ana), ("update_postimage", AMY)
    )
    with pytest.raises(RecordMisfit, match=r"It is row 3 of .*1\.parquet"):
        ps.run(customers(), {"customers": source}, {"out": io.Memory()})


@pytest.mark.parametrize("after", [[], [("insert", BOB)], [("update_preimage", BOB)]])
def test_a_preimage_without_a_postimage_is_unreadable(tmp_path: Path, after: list[Any]) -> None:
    source = delta_file(tmp_path / "1.parquet", ("insert", ANN), ("update_preimage", ANN), *after)
    with pytest.raises(BadRow, match="update_postimage") as error:
        ps.run(customers(), {"customers": source}, {"out": io.Memory()})
    assert (error.value.facts["row"], error.value.facts["file"]) == (2, str(tmp_path / "1.parquet"))


class Logged(NamedTuple):
    id: int
    name: str
    lsn: int
    day: int | None


def logged(op: str, before: Any, after: Any, lsn: int | None) -> Any:
    return {**envelope(op, before, after), "source": {"lsn": lsn, "db": "shop"}, "ts_ms": 86_400_000}


ANN_1, AMY_1 = {"id": 1, "name": "ann"}, {"id": 1, "name": "amy"}
LOGGED = [
    logged("c", None, ANN_1, 1),
    logged("d", {"id": 1}, None, 7),
    logged("u", ANN_1, AMY_1, 5),
    logged("c", None, {"id": 2, "name": "bob"}, 3),
]


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_the_position_in_the_log_is_read_from_the_envelope(payload: bool, order: int, tmp_path: Path) -> None:
    records = [{"payload": record} if payload else record for record in LOGGED[::order]]
    write(tmp_path / "1.json", json_lines(records))
    flow, memory = ps.Flow("f"), io.Memory()
    flow.sink("out", flow.table("rows", Logged, key="id", sequence="lsn"))
    source = io.Debezium(io.JsonFiles(tmp_path), columns={"lsn": "source.lsn", "day": "ts_ms"})
    ps.run(flow, {"rows": source}, {"out": memory})
    assert memory.rows() == [Logged(2, "bob", 3, 86_400_000)]


def test_an_envelope_without_its_position_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([logged("c", None, ANN_1, None)]))
    flow = ps.Flow("f")
    flow.sink("out", flow.table("rows", Logged, key="id", sequence="lsn"))
    source = io.Debezium(io.JsonFiles(tmp_path), columns={"lsn": "source.lsn"})
    with pytest.raises(BadRow, match="lsn: expected int64, found None"):
        ps.run(flow, {"rows": source}, {"out": io.Memory()})


class Versioned(NamedTuple):
    id: int
    name: str
    version: int | None


def versioned() -> ps.Flow:
    flow = ps.Flow("f")
    flow.sink("out", flow.table("rows", Versioned, key="id", sequence="version"))
    return flow


def test_a_row_that_moves_from_a_key_alone_leaves_it(tmp_path: Path) -> None:
    first, moved = {"id": 1, "name": "ann", "version": 4}, {"id": 2, "name": "ann", "version": 5}
    late = {"id": 1, "name": "ana", "version": 3}
    given = [envelope("c", None, first), envelope("u", {"id": 1}, moved), envelope("c", None, late)]
    write(tmp_path / "1.json", json_lines(given))
    memory = io.Memory()
    ps.run(versioned(), {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": memory})
    assert memory.rows() == [Versioned(2, "ann", 5)]


def test_equal_maps_are_one_key(tmp_path: Path) -> None:
    class Labelled(NamedTuple):
        labels: dict[str, int]
        version: int

    before, after = {"labels": {"b": 2, "a": 1}}, {"labels": {"a": 1, "b": 2}, "version": 5}
    write(tmp_path / "1.json", json_lines([envelope("u", before, after)]))
    flow, memory = ps.Flow("f"), io.Memory()
    flow.sink("out", flow.table("rows", Labelled, key="labels", sequence="version"))
    ps.run(flow, {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": memory})
    assert memory.rows() == [Labelled({"a": 1, "b": 2}, 5)]


@pytest.mark.parametrize("dead_letter", [False, True])
def test_rows_beside_a_preimage_alone_are_read(dead_letter: bool, tmp_path: Path) -> None:
    folder = tmp_path / "letters" if dead_letter else None
    delta_file(tmp_path / "in" / "1.parquet", ("insert", ANN), ("update_preimage", ANN), ("insert", BOB))
    source = io.DeltaChanges(io.ParquetFiles(tmp_path / "in", dead_letter=folder))
    memory = io.Memory()
    with nullcontext() if dead_letter else pytest.raises(BadRow):
        ps.run(customers(), {"customers": source}, {"out": memory})
    assert sorted(memory.rows()) == ([ANN, BOB] if dead_letter else [])


def test_rows_that_move_along_with_one_sequence_stay() -> None:
    rows = [Versioned(1, "ann", 1), Versioned(2, "bob", 1)]
    moves = [ps.update(row, row._replace(id=row.id + 1, version=5)) for row in rows]
    assert weights(versioned(), rows, moves)[1] == [
        (1, "ann", 1, -1),
        (2, "ann", 5, 1),
        (2, "bob", 1, -1),
        (3, "bob", 5, 1),
    ]


@pytest.mark.parametrize(
    "record",
    [
        envelope("d", {"id": 1}, None),
        envelope("c", None, {"id": 1, "name": "ann"}),
        envelope("u", {"id": 1}, {"id": 2, "name": "ann"}),
    ],
)
def test_a_record_without_a_sequence_is_unreadable(record: Any, tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([None, record]))
    with pytest.raises(BadRow, match="version: it is null, but orders the records of a key") as error:
        ps.run(versioned(), {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": io.Memory()})
    assert error.value.facts["row"] == 2


@pytest.mark.parametrize(
    "given", [ps.delete_key(1), ps.delete(Versioned(1, "ann", None)), Versioned(1, "ann", None)]
)
def test_a_record_in_python_without_a_sequence_is_refused(given: Any) -> None:
    with pytest.raises(BadRow, match="'rows', row 1") as error:
        weights(versioned(), [Versioned(1, "ann", 1), given])
    assert "sequence=" in (error.value.fix or "")
    assert error.value.facts["row"] == 1


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, {"lsn": "source.lsn"}),
        ({"key": "id"}, {"lsn": "source.lsn"}),
        ({"key": "id", "sequence": "lsn"}, {"id": "source.id"}),
        ({"key": "id", "sequence": "lsn"}, {"nobody": "source.lsn"}),
    ],
)
def test_columns_of_envelopes_need_a_key_and_a_sequence(options: Any, columns: Any, tmp_path: Path) -> None:
    flow = ps.Flow("f")
    flow.sink("out", flow.table("rows", Logged, **options))
    source = io.Debezium(io.JsonFiles(tmp_path), columns=columns)
    with pytest.raises(BadInput, match="envelopes"):
        ps.run(flow, {"rows": source}, {"out": io.Memory()})


@pytest.mark.parametrize("path", ["", "op", "source.", "a b", "before.id", "source"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="of an envelope"):
        io.Debezium(io.JsonFiles("in"), columns={"lsn": path, "name": "source.name"})


@pytest.mark.parametrize("tick_rows", [1, 1000])
def test_a_misfit_has_a_place(tmp_path: Path, tick_rows: int) -> None:
    write(tmp_path / "1.json", json_lines([envelope("c", None, ANN._asdict())]))
    there, file = ANN._replace(name="ana")._asdict(), tmp_path / "2.json"
    write(file, json_lines([None, envelope("c", None, BOB._asdict()), envelope("d", there, None)]))
    source = io.Debezium(io.JsonFiles(tmp_path))
    with pytest.raises(RecordMisfit, match=r"It is row 3 of .*2\.json") as error:
        ps.run(customers(), {"customers": source}, {"out": io.Memory()}, tick_rows=tick_rows)
    facts = error.value.facts
    assert (facts["file"], facts["number"], facts["key"], facts["held"]) == (str(file), 3, 1, tuple(ANN))


def test_sources_without_records_by_key_are_refused() -> None:
    for source in (io.Debezium(io.Kafka("a", "b")), io.Kafka("a", "b")):
        with pytest.raises(BadInput, match="is a table with a key, and cannot read"):
            ps.run(customers(), {"customers": source}, {"out": io.Memory()})


# -- Spark ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_files_mean_the_same_on_spark(form: str, mode: Any, spark: Any, tmp_path: Path) -> None:
    source, left = written(form, tmp_path / "in")
    memory = io.Memory()
    ps.spark.run(customers(), spark, sources={"customers": source}, sinks={"out": memory}, mode=mode)
    assert sorted(memory.rows()) == left


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_maps_before_a_change_have_no_order_on_spark(mode: Any, spark: Any, tmp_path: Path) -> None:
    images = [(None, {"a": 0.0, "b": 1.0}), ({"b": 1.0, "a": -0.0}, {"b": 7.0})]
    rows = [[None if tags is None else {"id": 1, "tags": tags} for tags in pair] for pair in images]
    write(tmp_path / "1.json", json_lines([envelope("u", *pair) for pair in rows]))
    source, memory = io.Debezium(io.JsonFiles(tmp_path)), io.Memory()
    ps.spark.run(tagged(), spark, sources={"tagged": source}, sinks={"out": memory}, mode=mode)
    assert memory.rows() == [Tagged(1, {"b": 7.0})]


@pytest.mark.spark
def test_rows_in_python_mean_the_same_on_spark(spark: Any) -> None:
    ticks = [ANN, BOB], [ps.update(ANN, AMY), ps.delete_key(2)], [AMY]
    memory = io.Memory()
    ps.spark.run(customers(), spark, sources={"customers": io.Rows(ticks)}, sinks={"out": memory})
    assert Counter(memory.rows()) == Counter([AMY])


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_misfit_names_the_table_on_spark(mode: Any, spark: Any) -> None:
    rows, memory = [[Dated("a", 1, 30, 5), Dated("a", 1, 20, 5)]], io.Memory()
    with pytest.raises(
        RecordMisfit, match=r"row of shop='a', item=1 in table 'prices': of sequence 5, it sets"
    ):
        ps.spark.run(prices(), spark, sources={"prices": io.Rows(rows)}, sinks={"out": memory}, mode=mode)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_dataframe_sets_its_rows(mode: Any, spark: Any) -> None:
    rows = [Dated("a", 1, 30, 5), Dated("a", 1, 20, 4), Dated("b", 1, 7, 1), Dated("b", 1, 7, 1)]
    frame = ps.spark.Frame(spark.createDataFrame(rows).select("at", "price", "item", "shop").coalesce(1))
    memory = io.Memory()
    ps.spark.run(prices(), spark, sources={"prices": frame}, sinks={"out": memory}, mode=mode)
    assert sorted(memory.rows()) == [rows[0], rows[2]]


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_weights_of_a_dataframe_set_and_delete(mode: Any, spark: Any) -> None:
    rows = [(1, "ann", "Rome", 1), (2, "bob", None, 1), (1, None, None, -1), (9, None, None, -1)]
    given = spark.createDataFrame(rows, "id long, name string, city string, weight long").coalesce(1)
    memory, sources = io.Memory(), {"customers": ps.spark.Frame(given)}
    ps.spark.run(customers(), spark, sources=sources, sinks={"out": memory}, mode=mode)
    assert memory.rows() == [BOB]


@pytest.mark.spark
@pytest.mark.parametrize("weight", ["2", "0", "null"])
def test_another_weight_in_a_dataframe_is_refused(weight: str, spark: Any) -> None:
    frame = spark.sql(f"SELECT 1L id, 'ann' name, 'Rome' city, CAST({weight} AS BIGINT) weight")
    with pytest.raises(BadRow, match=f"weight: .*, found {weight}"):
        ps.spark.run(
            customers(), spark, sources={"customers": ps.spark.Frame(frame)}, sinks={"out": io.Memory()}
        )


@pytest.mark.spark
def test_a_null_in_a_row_of_a_dataframe_is_refused(spark: Any) -> None:
    frame = ps.spark.Frame(spark.sql("SELECT 1L id, CAST(NULL AS STRING) name, 'Rome' city"))
    with pytest.raises(BadRow, match="null"):
        ps.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
def test_a_row_of_a_dataframe_without_a_sequence_is_refused(spark: Any) -> None:
    frame = ps.spark.Frame(spark.sql("SELECT 1L id, 'ann' name, CAST(NULL AS BIGINT) version"))
    with pytest.raises(BadRow, match="version: it is null, but orders the records of a key"):
        ps.spark.run(versioned(), spark, sources={"rows": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
def test_a_dataframe_without_a_column_is_refused(spark: Any) -> None:
    frame = ps.spark.Frame(spark.range(3))
    with pytest.raises(WrongType, match="name"):
        ps.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
def test_change_data_in_a_dataframe_is_refused(spark: Any) -> None:
    frame = io.Debezium(ps.spark.Frame(spark.range(3)))
    with pytest.raises(BadInput, match="is a table with a key, and cannot read Debezium"):
        ps.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})
