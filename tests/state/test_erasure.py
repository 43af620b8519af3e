"""Erasure: no byte of a value that was taken back is left in any file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import headrace as hr
from headrace import Flow, col
from headrace.cli.main import app
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.frontier import Frontier
from headrace.errors import BadInput
from headrace.io import Call, Changelog, JsonFiles, TableFiles
from headrace.state.checkpoint import erase
from headrace.state.codec import decode, value_encoder, without_erasable
from tests.operators.test_history import TIES, open_versions, versions_and_rows

SECRET = "ann.example@nowhere"


class Person(NamedTuple):
    id: int
    mail: str


PEOPLE = [Person(at, f"p{at}@somewhere") for at in range(50)] + [Person(50, SECRET)]


def files_with(folder: Path, value: str = SECRET) -> list[str]:
    """Files with a value in their bytes, or in the values of their Parquet columns."""
    found: list[str] = []
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += repr(pq.ParquetFile(file).read().to_pylist()).encode()
        if value.encode() in content:
            found.append(file.relative_to(folder).as_posix())
    return found


def held(flow: Flow, folder: Path, ticks: list[list[Any]]) -> None:
    engine_ticks = hr.io.Rows(ticks)
    hr.run(
        flow,
        {"people": engine_ticks},
        {"rows": Changelog(folder / "log"), "table": TableFiles(folder / "table")},
        checkpoint=folder / "state",
    )


def people() -> Flow:
    flow = Flow("people")
    rows = flow.table("people", Person)
    joined = rows.join(rows.select(col.id, also=col.mail), on="id")
    flow.sink("rows", joined)
    flow.sink("table", joined)
    return flow


TICKS: list[list[Any]] = [
    [hr.insert(person) for person in PEOPLE],
    [hr.delete(PEOPLE[-1])],
]


def test_a_deleted_row_is_in_no_file_of_a_run(tmp_path: Path) -> None:
    held(people(), tmp_path, TICKS)
    assert {name.partition("/")[0] for name in files_with(tmp_path)} == {"log", "state", "table"}
    for place in ("state", "log", "table"):
        done = CliRunner().invoke(app, ["state", "compact", "--erase", str(tmp_path / place)])
        assert done.exit_code == 0, done.output
    assert files_with(tmp_path) == []
    # The run goes on where it was.
    held(people(), tmp_path, [*TICKS, [hr.insert(Person(60, "new@somewhere"))]])
    rows = pq.read_table(tmp_path / "table" / "current").to_pylist()
    assert Counter(row["id"] for row in rows) == Counter([*range(50), 60])
    log: Counter[int] = Counter()
    for file in (tmp_path / "log").glob("tick=*/*.parquet"):
        for row in pq.ParquetFile(file).read().to_pylist():
            log[row["id"]] += row["weight"]
    assert +log == Counter([*range(50), 60])


def test_a_tick_that_waits_for_its_receiver_is_kept_until_it_is_delivered(tmp_path: Path) -> None:
    flow = Flow("people")
    flow.sink("told", flow.table("people", Person))
    told: list[Any] = []

    def run(receive: Any) -> None:
        hr.run(flow, {"people": hr.io.Rows(TICKS)}, {"told": Call(receive)}, checkpoint=tmp_path / "state")

    def fail_at_the_deletion(tick: int, changes: Any) -> None:
        if tick == 2:
            raise ConnectionError("the receiver is down")

    with pytest.raises(ConnectionError):
        run(fail_at_the_deletion)
    erase(tmp_path / "state")
    (waiting,) = files_with(tmp_path)
    assert waiting.startswith("state/outbox/")
    run(lambda tick, changes: told.append((tick, [tuple(c.row) for c in changes])))
    assert told == [(2, [(50, SECRET)])]
    assert files_with(tmp_path) == []


def test_a_row_that_was_set_aside_is_in_its_dead_letter_only(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(f'{{"id": 1, "mail": "a"}}\n{{"id": "{SECRET}", "mail": "b"}}\n')
    flow = Flow("people")
    flow.sink("rows", flow.source("people", Person))
    hr.run(
        flow,
        {"people": JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")},
        {"rows": Changelog(tmp_path / "log")},
        checkpoint=tmp_path / "state",
    )
    assert files_with(tmp_path) == ["dead/tick=1-people.jsonl", "in/1.json"]


class Change(NamedTuple):
    id: int
    mail: str
    at: int
    op: str


INSERTED = [Change(person.id, person.mail, 5, "I") for person in PEOPLE]
OTHER = "zoe.other@nowhere"


@pytest.mark.parametrize("on_misfit", ["error", "trust_key"])
@pytest.mark.parametrize("build", ["upsert", "history"])
@pytest.mark.parametrize(
    "deletions",
    [
        [Change(50, SECRET, 5, "D")],
        [Change(50, "", 5, "K")],
        [Change(50, SECRET, 5, "K"), Change(50, SECRET, 5, "D")],
    ],
    ids=["of the row", "of the key", "of both"],
)
def test_a_row_that_a_deletion_of_its_sequence_hides_is_in_no_file_of_state(
    tmp_path: Path, deletions: list[Change], build: str, on_misfit: str
) -> None:
    rows: Counter[Any] = Counter()

    def receive(tick: int, changes: Any) -> None:
        for change in changes:
            rows[tuple(change.row)[:3]] += change.weight

    def run(*ticks: list[Change]) -> None:
        flow = Flow("people")
        row = hr.when(col.op != "K", hr.struct(id=col.id, mail=col.mail, at=col.at))
        options: Any = {"sequence": "at", "row": row, "deleted": col.op == "D", "on_misfit": on_misfit}
        flow.sink("rows", getattr(flow.source("people", Change), build)("id", **options))
        given = {"people": hr.io.Rows([INSERTED, deletions, *ticks])}
        hr.run(flow, given, {"rows": Call(receive)}, checkpoint=tmp_path / "state")

    run()
    assert files_with(tmp_path)
    erase(tmp_path / "state")
    assert files_with(tmp_path) == []
    others = {tuple(each[:3]) for each in INSERTED[:-1]}
    assert set(+rows) == others
    # It is as if the record of the row had never come, until it comes again.
    older = [Change(50, OTHER, 4, "I")]
    run(older)
    assert {each[1] for each in +rows} & {SECRET, OTHER} == (set() if build == "upsert" else {OTHER})
    run(older, [INSERTED[-1]])
    is_shown = deletions[0].mail == ""
    assert (tuple(INSERTED[-1][:3]) in +rows) is is_shown


@given(ticks=st.lists(st.lists(TIES, max_size=4), max_size=6), at=st.integers(0, 6))
def test_after_an_erasure_open_versions_are_still_the_rows_of_upsert(ticks: list[list[Any]], at: int) -> None:
    flow = versions_and_rows("trust_key")
    state: dict[str, dict[Any, Any]] = {name: {} for name in hr.Engine(flow).slots}
    shown: dict[str, Counter[Any]] = {"rows": Counter(), "versions": Counter()}
    engine, encode = hr.Engine(flow, state=state), value_encoder()
    for n, tick in enumerate(ticks):
        if n == at:
            for slot in state.values():
                slot.update({key: decode(without_erasable(encode(value))) for key, value in slot.items()})
            engine = hr.Engine(flow, state=state)
        made = engine.tick(records=tick)
        for name, so_far in shown.items():
            for *row, weight in made[name].raw:
                so_far[tuple(row)] += weight
        assert open_versions(shown) == +shown["rows"]


def test_a_hidden_row_of_a_key_with_many_records_is_in_no_file_of_state(tmp_path: Path) -> None:
    flow = Flow("people")
    row = hr.struct(id=col.id, mail=col.mail)
    people = flow.source("people", Change)
    flow.sink("rows", people.history("id", sequence="at", row=row, deleted=col.op == "D"))
    many = [Change(1, f"p{at}@somewhere", at, "I") for at in range(1, 5000)]
    ticks = [[Change(1, SECRET, 0, "I"), *many], [Change(1, SECRET, 0, "D")]]
    given = {"people": hr.io.Rows(ticks)}
    hr.run(flow, given, {"rows": Call(lambda tick, changes: None)}, checkpoint=tmp_path / "state")
    assert files_with(tmp_path)
    erase(tmp_path / "state")
    assert files_with(tmp_path) == []


def test_a_hidden_row_that_an_earlier_version_wrote_is_erased_after_the_next_record_of_its_key() -> None:
    flow = Flow("people")
    row = hr.struct(id=col.id, mail=col.mail)
    people = flow.source("people", Change)
    flow.sink("rows", people.upsert("id", sequence="at", row=row, deleted=col.op == "D"))
    (rows,) = hr.Engine(flow).slots
    state: dict[str, dict[Any, Any]] = {rows: {}}
    hr.Engine(flow, state=state).tick(people=[Change(1, SECRET, 5, "I"), Change(1, SECRET, 5, "D")])
    *others, hidden, digests, deletions = state[rows][1]
    state[rows][1] = (*others, hidden.value, digests, deletions)
    encode = value_encoder()
    assert SECRET.encode() in without_erasable(encode(state[rows][1]))
    hr.Engine(flow, state=state).tick(people=[Change(1, OTHER, 4, "D")])
    assert SECRET.encode() not in without_erasable(encode(state[rows][1]))


def test_an_erasure_is_repeated_and_refused_elsewhere(tmp_path: Path) -> None:
    held(people(), tmp_path, TICKS)
    first = erase(tmp_path / "state")
    assert (first.tick, erase(tmp_path / "state").after) == (2, first.after)
    for arguments, said in {
        ("compact", str(tmp_path / "state")): "needs --erase",
        ("compact", "--erase", str(tmp_path / "nowhere")): "is not there",
        ("compact", "--erase", str(tmp_path)): "is not a changelog",
    }.items():
        refused = CliRunner().invoke(app, ["state", *arguments])
        assert refused.exit_code == 2
        assert said in refused.output


def test_a_deleted_row_is_in_no_page_of_a_store(tmp_path: Path) -> None:
    file = tmp_path / "collections.db"
    store = SqliteCollections(file)
    store.create("people", b"")
    rows = [(tuple(person), 0, 1) for person in PEOPLE]
    store.append([CollectionAppend("people", Frontier(0), Frontier(1), rows)])
    store.append([CollectionAppend("people", Frontier(1), Frontier(2), [(tuple(PEOPLE[-1]), 1, -1)])])
    # As long as readers may ask for an earlier time, the row stays, and that is said.
    assert set(store.erase()) == {"people"}
    assert files_with(tmp_path)
    store.compact("people", Frontier(1))
    assert store.erase() == {}
    assert files_with(tmp_path) == []
    found = [row for rows in store.snapshot("people", 1) for row, _ in rows]
    assert Counter(found) == Counter(map(tuple, PEOPLE[:-1]))
    store.close()
    done = CliRunner().invoke(app, ["state", "compact", "--erase", f"sqlite:{file}"])
    assert done.stdout == "what was deleted is erased\n"


def test_a_store_that_cannot_erase_says_so() -> None:
    from headrace.compute.collections.memory import MemoryCollections

    with pytest.raises(BadInput, match="cannot erase"):
        MemoryCollections().erase()


@pytest.mark.parametrize("place", ["sqlite:typo.db", "sqlite:empty", "sqlite:folder"])
def test_a_store_that_is_not_there_is_not_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    done = CliRunner().invoke(app, ["state", "compact", "--erase", place])
    assert (done.exit_code, "there is no store of collections at" in done.output) == (2, True), done.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "folder"]
    assert (tmp_path / "empty").stat().st_size == 0
