"""The commands that ask a controller, against one in a thread whose replica is in the same process."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.views import _table
from headrace.compute.channels import ConnectionLimits
from headrace.compute.client.client import Client
from headrace.compute.client.conversation import Endpoint
from headrace.compute.client.subscription import CachedDescription, TimedUpdate, UpdateBatch
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
from headrace.expr.row_classes import schema_of
from headrace.ui.controller_page import ControllerPage
from tests.cli.conftest import FLOWS
from tests.golden import assert_golden

pytest.importorskip("grpc", reason="grpcio is not installed")


GOLDEN = Path(__file__).parent / "golden"


CONCERTS = """
from typing import NamedTuple

import headrace as hr
from headrace import col


class Concert(NamedTuple):
    concert: str
    capacity: int


class Booking(NamedTuple):
    concert: str
    seats: int


flow = hr.Flow("free seats")
booked = flow.table("bookings", Booking).group_by("concert").agg(booked=hr.sum(col.seats))
concerts = flow.table("concerts", Concert)
left = concerts.join(booked, on="concert", how="left")
flow.sink("free", left.select("concert", free=col.capacity - hr.coalesce(col.booked, 0)))
"""


class Item(NamedTuple):
    name: str


class Served:
    """A controller and a replica, each served by one thread's event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        replica, found = self._started(
            lambda ready: run_replica(ReplicaOptions("127.0.0.1:0", self.folder / "r1"), ready)
        )
        options = Options("127.0.0.1:0", self.folder / "state", replicas={"r1": await found})
        controller, found = self._started(lambda ready: run_controller(options, ready))
        self.address = await found
        self._tasks = [controller, replica]
        self._ready.set()
        for task in self._tasks:
            await asyncio.wait([task])

    def _started(self, serve: Any) -> tuple[asyncio.Task[None], asyncio.Future[str]]:
        address: asyncio.Future[str] = self._loop.create_future()
        return self._loop.create_task(serve(address.set_result)), address

    def end(self) -> None:
        for task in self._tasks:
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    (made.folder / "flows.py").write_text(FLOWS)
    yield made
    made.end()


@pytest.fixture
def headrace(served: Served) -> Any:
    runner = CliRunner()

    def run(*arguments: str, code: int = 0, **more: Any) -> Any:
        environment = {"HEADRACE_CONTROLLER": served.address, "COLUMNS": "120", "NO_COLOR": "1"}
        done = runner.invoke(app, arguments, env=environment, **more)
        assert done.exit_code == code, done.output
        return done

    return run


def test_a_view_is_made_filled_read_watched_and_dropped(headrace: Any, served: Served) -> None:
    flow = f"{served.folder / 'flows.py'}:totals"
    made = headrace(
        "view", "create", flow, "--key", "shop", "--tick-rows", "1000", "--state-bytes", "1000000"
    )
    assert made.output == "view totals of sales\n"
    lines = '{"shop": "a", "price": 1}\n{"shop": "b", "price": 2}\n{"price": 3, "shop": "a"}\n'
    added = headrace("insert", "sales", "-", input=lines).output
    assert re.fullmatch(r"3 rows added to sales at \d+\n", added)
    assert (
        headrace("peek", "totals", "--key", "a", "--format", "json").stdout == '{"shop": "a", "total": 4}\n'
    )
    table = headrace("peek", "totals", "--order-by=-total", "--where", "col.total > 0").stdout
    assert_golden(GOLDEN / "peek.txt", table)
    watched = headrace("subscribe", "totals", "--once").stdout
    assert re.fullmatch(
        r"\d+ \+ shop=a total=4\n\d+ \+ shop=b total=2\n", "".join(sorted(watched.splitlines(True)))
    )
    as_json = headrace("subscribe", "totals", "--once", "--format", "json").stdout
    assert {json.loads(line)["row"]["total"] for line in as_json.splitlines()} == {4, 2}
    status = json.loads(headrace("status", "--json").stdout)
    assert [view["name"] for view in status["views"]] == ["totals"]
    shown = headrace("status").stdout
    assert [replica["ready"] for replica in status["replicas"]] == [False]
    for word in ("r1", "connected", "can take over", "not yet", "totals", "ready", "clients, only added to"):
        assert word in shown
    assert "totals" in headrace("view", "list").stdout
    headrace("view", "drop", "totals")
    assert "UnknownName" in headrace("peek", "totals", code=2).stderr


@pytest.fixture
def free(headrace: Any, served: Served) -> Iterator[str]:
    """The view of a flow over two collections of which rows may be deleted, with rows."""
    (served.folder / "concerts.py").write_text(CONCERTS)
    headrace("view", "create", f"{served.folder / 'concerts.py'}:flow", "--key", "concert")
    headrace(
        "insert", "concerts", "-", input='{"concert": "a", "capacity": 9}\n{"concert": "b", "capacity": 5}\n'
    )
    bookings = [
        '{"concert": "a", "seats": 2}',
        '{"concert": "a", "seats": 3}',
        '{"concert": "b", "seats": 1}',
    ]
    headrace("insert", "bookings", "-", input="\n".join(bookings))
    headrace("delete", "bookings", "--row", bookings[1])
    yield "free"
    for name in ("free", "bookings", "concerts"):
        headrace("view", "drop", name)


def test_the_flow_of_a_view_is_explained(headrace: Any, free: str) -> None:
    assert_golden(GOLDEN / "view_explain.txt", headrace("view", "explain", free).stdout)


def test_the_rows_that_a_row_of_a_view_came_from_are_found(headrace: Any, free: str) -> None:
    asked = ("view", "why", free, '{"concert": "a", "free": 7}')
    found = json.loads(headrace(*asked, "--json").stdout)
    needed = {
        name: [row["values"] for row in each["rows"] if row["needed"]]
        for name, each in found["sources"].items()
    }
    assert needed == {"concerts": [["a", "9"]], "bookings": [["a", "2"]]}
    assert "needed" in headrace(*asked).stdout
    deleted = headrace("view", "why", free, '{"concert": "a", "free": 4}', code=1).stdout
    assert "do not produce the row" in deleted
    wrong = headrace("view", "why", free, '{"concert": "a"}', code=2).stderr
    assert "does not fit the sink" in wrong


def test_the_page_draws_what_views_read_and_the_flow_of_each(served: Served, free: str) -> None:
    with Client(served.address) as client:
        page = ControllerPage(served.address, client, lambda view, row: {"asked": (view, row)})
        assert "not answered" in page.flow("")["why_not"]
        page.refresh()
        drawn = page.flow("")["svg"]
        assert all(f">{name}<" in drawn for name in ("free", "concerts", "bookings"))
        assert "left on concert = concert" in page.flow(free)["explanation"]
        assert page.why(free, "{}") == {"asked": (free, "{}")}
        assert "is a collection" in page.why("bookings", "{}")["why_not"]


@pytest.mark.parametrize("asked", [("explain", "bookings"), ("why", "bookings", "{}")])
def test_a_collection_has_no_flow(headrace: Any, free: str, asked: tuple[str, ...]) -> None:
    assert_golden(GOLDEN / "view_of_collection.txt", headrace("view", *asked, code=2).stderr)


def test_what_is_wrong_is_said_before_anything_is_written(headrace: Any, served: Served) -> None:
    headrace("view", "create", f"{served.folder / 'flows.py'}:totals", "--name", "other", "--key", "shop")
    assert headrace("insert", "sales", "-", input=b"").output == "- has no rows: nothing added to sales\n"
    assert "there is no file" in headrace("insert", "sales", "nowhere.json", code=2).stderr
    assert "rows are given" in headrace("insert", "sales", code=2).stderr
    wrong = headrace("insert", "sales", "--row", '{"shop": 7, "price": 1}', code=1).stderr
    assert "--row, line 1 is not a row of 'sales'" in wrong
    assert "is not a key of 'other'" in headrace("peek", "other", "--key", "[1, 2]", code=2).stderr
    assert "not an expression" in headrace("peek", "other", "--where", "col.total >", code=2).stderr
    assert "NotWritable" in headrace("delete", "sales", "--row", '{"shop": "a", "price": 1}', code=2).stderr


DEEP = "[" * 100_000


@pytest.mark.parametrize("row", [DEEP, "[" * 5000 + "]" * 5000, f'{{"shop": {DEEP}', f'{{"shops": {DEEP}'])
def test_rows_that_are_nested_too_deeply_are_refused(
    row: str, headrace: Any, served: Served, tmp_path: Path
) -> None:
    headrace("view", "create", f"{served.folder / 'flows.py'}:stock", "--name", "deep")
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"shop": "a", "price": 1}}\n{row}\n')
    said = headrace("insert", "sales", str(file), code=1).stderr
    assert "rows.jsonl, line 2 is not a row of 'sales': " in said
    assert len(said) < 1000
    headrace("view", "drop", "deep")


@pytest.mark.parametrize("key", [DEEP, "[" * 5000 + "]" * 5000])
def test_keys_that_are_nested_too_deeply_are_refused(key: str, headrace: Any, wide: str) -> None:
    said = headrace("peek", wide, "--key", key, code=2).stderr
    assert "is not a key of" in said
    assert len(said) < 1000


@pytest.mark.parametrize("by", ["file", "standard input"])
def test_rows_that_are_no_utf8_are_refused(by: str, headrace: Any, served: Served, tmp_path: Path) -> None:
    headrace("view", "create", f"{served.folder / 'flows.py'}:stock", "--name", "latin")
    (file := tmp_path / "rows.jsonl").write_bytes('{"shop": "café", "price": 1}\n'.encode("latin-1"))
    if by == "file":
        said = headrace("insert", "sales", str(file), code=1).stderr
    else:
        said = headrace("insert", "sales", "-", input=file.read_bytes(), code=1).stderr
    assert "line 1 is not a row of 'sales': shop: the text is not valid Unicode" in said
    headrace("view", "drop", "latin")


def test_writes_above_the_limit_of_messages_say_how_many_rows_fit(
    headrace: Any, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace("view", "create", f"{served.folder / 'flows.py'}:stock", "--name", "large")
    before = headrace("peek", "large", "--format", "json").stdout
    small = partial(Endpoint, limits=ConnectionLimits(message=10_000))
    monkeypatch.setattr("headrace.compute.client.client.Endpoint", small)
    rows, row = tmp_path / "rows.jsonl", tmp_path / "row.jsonl"
    rows.write_text("".join(f'{{"shop": "{shop:0100}", "price": 1}}\n' for shop in range(200)))
    row.write_text(f'{{"shop": "{0:020000}", "price": 1}}\n')
    said = headrace("insert", "sales", str(rows), code=2).stderr
    fitting = re.search(r"--at-once (\d+)", said)
    assert fitting is not None
    texts = [said, headrace("insert", "sales", str(row), code=2).stderr]
    assert_golden(GOLDEN / "too_large.txt", "\n".join(texts))
    assert headrace("peek", "large", "--format", "json").stdout == before
    added = headrace("insert", "sales", str(rows), "--at-once", fitting[1]).stdout
    assert sum(int(line.split()[0]) for line in added.splitlines()) == 200
    headrace("view", "drop", "large")


NESTED = """
from typing import NamedTuple

import headrace as hr


class Address(NamedTuple):
    street: str
    town: str | None


class Person(NamedTuple):
    name: str
    age: int | None
    address: Address
    others: list[Address] | None


people = hr.Flow("people")
people.sink("people", people.table("persons", Person))
"""


def test_a_column_that_the_collection_does_not_have_is_refused(
    headrace: Any, served: Served, tmp_path: Path
) -> None:
    (served.folder / "people.py").write_text(NESTED)
    headrace("view", "create", f"{served.folder / 'people.py'}:people", "--name", "people")
    good = {"name": "ann", "age": 1, "address": {"street": "x"}}
    bad: dict[str, dict[str, Any]] = {
        "misspelt": {"name": "bob", "agee": 7, "address": {"street": "x"}},
        "of another case": {"name": "bob", "Age": 7, "address": {"street": "x"}},
        "one too many": {**good, "sold": True, "ages": 3},
        "nested": {**good, "address": {"street": "x", "twon": "y"}},
        "in a list": {**good, "others": [{"street": "x"}, {"street": "y", "zip": 1}]},
    }
    texts: list[str] = []
    for name, row in bad.items():
        file = tmp_path / "rows.jsonl"
        file.write_text(f"{json.dumps(good)}\n\n{json.dumps(row)}\n")
        for command in ("insert", "delete"):
            said = headrace(command, "persons", str(file), code=1).stderr
        texts.append(f"# {name}\n{said.replace(str(file), 'rows.jsonl')}")
    twice = headrace("insert", "persons", "--row", '{"name": "bob", "name": "eve"}', code=1).stderr
    texts.append(f"# twice\n{twice}")
    assert_golden(GOLDEN / "unknown_columns.txt", "\n".join(texts))
    assert headrace("peek", "people", "--format", "json").stdout == ""


def test_what_where_says_is_read_and_never_run(headrace: Any, wide: str, served: Served) -> None:
    mark = served.folder / "run"
    popen = "[c for c in ().__class__.__mro__[1].__subclasses__() if c.__name__ == 'Popen'][0]"
    for where in (f"{popen}(['touch', {str(mark)!r}]).wait() == 0", f"hr.os.system('touch {mark}') == 0"):
        said = headrace("peek", wide, "--where", where, code=2).stderr
        assert "P002 BadExpression: --where: not an expression" in said
        assert "^ character " in said
        assert "A text is read as an expression and never run" in said
    assert not mark.exists()


def test_where_takes_the_expressions_of_flows(headrace: Any, wide: str) -> None:
    where = "(col.id == 1) & ~col.tags[0].is_in('x', 'y') & (col.day < hr.date('2024-02-01'))"
    shown = headrace("peek", wide, "--where", where, "--format", "json").stdout
    assert [json.loads(line)["id"] for line in shown.splitlines()] == [1]


def test_a_controller_that_is_not_there_is_said(headrace: Any) -> None:
    said = headrace("status", "--controller", "127.0.0.1:1", code=1).stderr
    assert said.startswith("P708 ConnectionBroken: there is no connection to 127.0.0.1:1\n")
    assert said.endswith(
        "Fix: start it, or correct the address (a controller's: --controller or HEADRACE_CONTROLLER). "
        "If it runs: use TLS on both sides or on neither, and give it the CA of our certificate\n"
    )


def test_replicas_are_added_and_dropped(headrace: Any) -> None:
    headrace("replicas", "add", "r2=127.0.0.1:1")
    assert "waiting" in headrace("status").stdout
    headrace("replicas", "release", "r2")
    headrace("replicas", "drop", "r2")
    assert "UnknownName" in headrace("replicas", "drop", "r2", code=2).stderr


WIDE = """
from datetime import date
from decimal import Decimal
from typing import NamedTuple

import headrace as hr
from headrace import col


class Wide(NamedTuple):
    id: int
    day: date | None
    price: Decimal | None
    tags: list[str] | None
    a_column_with_a_long_name_that_nobody_may_cut: str | None
    another_column_with_a_long_name_that_nobody_may_cut: str | None
    one_more_column_with_a_long_name_that_nobody_may_cut: str | None
    the_last_column_with_a_long_name_that_nobody_may_cut: str | None


wide = hr.Flow("wide")
wide.sink("wide", wide.table("wides", Wide).filter(col.id >= 0))
"""


@pytest.fixture(scope="module")
def wide(served: Served) -> str:
    """A view of dates, decimals, lists and nulls, by id and day."""
    (served.folder / "wide_flow.py").write_text(WIDE)
    run = CliRunner()
    rows = (
        '{"id": 1, "day": "2024-01-02", "price": 1234567890.123456789012345678, "tags": ["a", "b"]}',
        '{"id": 2}',
    )
    flow = f"{served.folder / 'wide_flow.py'}:wide"
    for command in (
        ["view", "create", flow, "-k", "id", "-k", "day"],
        ["insert", "wides", "--row", rows[0], "--row", rows[1]],
    ):
        done = run.invoke(app, command, env={"HEADRACE_CONTROLLER": served.address})
        assert done.exit_code == 0, done.output
    return "wide"


def test_decimals_are_read_with_all_their_digits(headrace: Any, wide: str) -> None:
    found = headrace("peek", wide, "--key", '[1, "2024-01-02"]', "--format", "json").stdout
    assert json.loads(found)["price"] == "1234567890.123456789012345678"


TOOK = """
from datetime import timedelta
from typing import NamedTuple

import headrace as hr


class Took(NamedTuple):
    took: timedelta


took = hr.Flow("took")
took.sink("took", took.table("tooks", Took))
"""


def test_an_interval_is_shown_as_a_key_is_written(headrace: Any, served: Served) -> None:
    (served.folder / "took_flow.py").write_text(TOOK)
    headrace("view", "create", f"{served.folder / 'took_flow.py'}:took", "-k", "took")
    text = "INTERVAL '-1 02:03:04.5' DAY TO SECOND"
    headrace("insert", "tooks", "--row", json.dumps({"took": text}))
    assert text in headrace("peek", "took").stdout
    assert text in headrace("peek", "took", "--key", text).stdout
    assert f"+ took={text}" in headrace("subscribe", "took", "--once").stdout


def test_null_is_a_key(headrace: Any, wide: str) -> None:
    assert json.loads(headrace("peek", wide, "--key", "[2, null]", "--format", "json").stdout)["id"] == 2
    assert "is not a key of 'wide'" in headrace("peek", wide, "--key", '[null, "2024-01-02"]', code=2).stderr


def test_what_is_not_read_on_a_screen_is_not_cut(headrace: Any, wide: str) -> None:
    shown = headrace("peek", wide).stdout
    assert "the_last_column_with_a_long_name_that_nobody_may_cut" in shown
    assert len(shown.splitlines()) == 4


def test_a_table_that_changes_shows_lists_and_nulls(headrace: Any, wide: str) -> None:
    shown = headrace("subscribe", wide, "--once", "--format", "table").stdout
    assert "['a', 'b']" in shown
    assert "None" not in shown
    assert "2 rows, all before" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        ("peek", "wide", "--where", "1"),
        ("peek", "wide", "--where", "col.id + 1"),
        ("peek", "wide", "--at", str(2**64)),
        ("subscribe", "wide", "--as-of=-5"),
        ("subscribe", "wide", "--as-of", str(2**63)),
    ],
    ids=" ".join,
)
def test_what_is_no_time_and_no_expression_is_said(headrace: Any, wide: str, wrong: tuple[str, ...]) -> None:
    assert "P202 BadInput" in headrace(*wrong, code=2).stderr


def test_a_line_of_our_own_is_not_blamed(headrace: Any, wide: str) -> None:
    said = headrace("peek", wide, "--order-by", "nope", code=2).stderr
    assert "has no column 'nope'" in said
    assert "events.py" not in said


def test_a_view_is_copied_into_the_folder_of_a_replica(headrace: Any, wide: str, served: Served) -> None:
    assert headrace("copy", wide, "wide.jsonl").stdout == "2 rows of wide copied to wide.jsonl\n"
    (file,) = served.folder.rglob("wide.jsonl")
    assert {json.loads(line)["id"] for line in file.read_text().splitlines()} == {1, 2}


def test_a_replica_without_an_address_is_refused(headrace: Any) -> None:
    assert "'nonsense' is no address" in headrace("replicas", "add", "b=nonsense", code=2).stderr


def test_replicas_are_listed(headrace: Any) -> None:
    assert "r1" in headrace("replicas", "list").stdout


def test_a_row_that_is_not_there_is_told_by_the_name_of_its_collection(headrace: Any, wide: str) -> None:
    said = headrace("delete", "wides", "--row", '{"id": 7}', code=2).stderr
    assert "NegativeMultiplicity: a row of 'wides' is retracted more often than inserted: (7, None" in said


@pytest.mark.parametrize(
    "read",
    [("peek", "--at"), ("subscribe", "--as-of")],
    ids=lambda read: read[0],
)
def test_a_read_that_is_not_answered_in_time_says_what_is_missing(
    headrace: Any, wide: str, read: tuple[str, str]
) -> None:
    command, at = read
    said = headrace(command, wide, at, str(2**62), "--patience", "0s", code=1).stderr
    assert "ReadTimeout" in said
    assert "nothing has been written up to that time yet" in said
    assert "not a span of time" in headrace(command, wide, "--patience", "soon", code=2).stderr


def test_a_table_that_changes_holds_back_what_is_taken_back_before_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = CachedDescription("items", "u1", True, schema_of(Item))
    with _table(known, progress=False) as show:
        show(UpdateBatch(0, 5, (TimedUpdate(Item("a"), 3, -1), TimedUpdate(Item("b"), 4, 1))))
        show(UpdateBatch(5, 6, (TimedUpdate(Item("c"), 5, -1), TimedUpdate(Item("a"), 5, 2))))
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 rows, all before 6, 1 held back" in shown
    assert "-1" not in shown


def test_a_replica_takes_no_token_of_clients() -> None:
    done = CliRunner().invoke(
        app, ["replica", "--listen", "127.0.0.1:0", "--state", "r"], env={"HEADRACE_TOKEN": "of clients"}
    )
    assert done.exit_code == 2
    assert "HEADRACE_TOKEN is the token of clients, and none of them may command a replica" in done.output
    assert "of clients\n" not in done.output
