"""A file that cannot be read fails its tick, and no later run once it is corrected, removed or skipped.

A tick that failed has not happened: what it was to read is planned anew by the next run, on both engines.
What a committed tick has read is settled, also where its output was not published yet.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import Flow, col, io
from headrace.cli.main import app
from headrace.errors import BadRow, HeadraceError, InputChanged, UnreadableSource
from headrace.io.files.file_source import Listing, PendingFiles
from headrace.io.source import DONE
from headrace.spark import run as run_on_spark
from headrace.spark.ticks.ticker import DriverSink
from headrace.state.inspection import inspect
from headrace.state.rewind import skip_file

typer = pytest.importorskip("typer")
pytest.importorskip("pyspark")


pytestmark = [pytest.mark.spark, pytest.mark.verify]


class Bid(NamedTuple):
    item: int
    price: int


class Number(NamedTuple):
    of: int


def inverse(number: Number) -> Number:
    return Number(60 // number.of)


def bids_of(number: int) -> list[Bid]:
    return [Bid(n % 4, n * number % 13) for n in range(9)]


def totals_of(*numbers: int) -> Counter[Any]:
    """The answer, recomputed from the rows of some files."""
    prices: dict[int, list[int]] = {}
    for number in numbers:
        for bid in bids_of(number):
            prices.setdefault(bid.item, []).append(bid.price)
    return Counter((item, sum(found), len(found)) for item, found in prices.items())


def totals() -> Flow:
    flow = Flow("totals")
    bids = flow.source("bids", Bid)
    flow.sink("totals", bids.group_by(col.item).agg(total=hr.sum(col.price), n=hr.count()))
    return flow


# --- files of three formats -----------------------------------------------------------------------


def csv(bids: list[Bid], *, bad: bool) -> bytes:
    header = "item,prize" if bad else "item,price"
    return "\n".join([header, *(f"{b.item},{b.price}" for b in bids), ""]).encode()


def jsonl(bids: list[Bid], *, bad: bool) -> bytes:
    lines = [json.dumps(bid._asdict()) for bid in bids]
    if bad:
        lines[5] = lines[5][:-1]
    return "\n".join([*lines, ""]).encode()


def parquet(bids: list[Bid], *, bad: bool) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([bid._asdict() for bid in bids]), out)
    content = out.getvalue().to_pybytes()
    return content[: len(content) // 2] if bad else content


Encode = Callable[..., bytes]


class Format(NamedTuple):
    ending: str
    source: Callable[..., Any]
    encode: Encode
    error: type[HeadraceError]


FORMATS = {
    "csv": Format("csv", io.CsvFiles, csv, UnreadableSource),
    "json": Format("json", io.JsonFiles, jsonl, BadRow),
    "parquet": Format("parquet", io.ParquetFiles, parquet, UnreadableSource),
}


class Runs:
    """Runs of one flow with one checkpoint, over the files of a folder."""

    def __init__(self, folder: Path, form: Format, spark: Any, **options: Any) -> None:
        self.folder = folder
        self.form = form
        self._spark = spark
        self._options = options
        self.tick_rows = 1000
        (folder / "in").mkdir()

    def file(self, number: int, beside: str = "") -> Path:
        return self.folder / "in" / f"{number}{beside}.{self.form.ending}"

    def arrive(self, number: int, *, bad: bool = False, beside: str = "") -> None:
        aside = self.folder / "in" / ".arriving"
        aside.write_bytes(self.form.encode(bids_of(number), bad=bad))
        aside.rename(self.file(number, beside))

    def run(self, **options: Any) -> None:
        sources = {"bids": self.form.source(self.folder / "in", **self._options)}
        sinks = {"totals": io.TableFiles(self.folder / "out", key="item", buckets=2)}
        checkpoint = self.folder / "c"
        if self._spark is None:
            hr.run(totals(), sources, sinks, checkpoint=checkpoint, tick_rows=self.tick_rows, **options)
        else:
            run_on_spark(
                totals(),
                self._spark,
                sources=sources,
                sinks=sinks,
                checkpoint=checkpoint,
                shards=2,
                **options,
            )

    def fail(self) -> HeadraceError:
        with pytest.raises(self.form.error) as raised:
            self.run()
        return raised.value

    @property
    def table(self) -> Counter[Any]:
        files = (self.folder / "out" / "current").glob("*.parquet")
        return Counter(tuple(row.values()) for f in files for row in pq.ParquetFile(f).read().to_pylist())


@pytest.fixture(params=["here", "spark"])
def engine(request: pytest.FixtureRequest) -> Any:
    """The Spark session, or None for a run in this process."""
    return None if request.param == "here" else request.getfixturevalue("spark")


def command_of(error: HeadraceError) -> list[str]:
    """The command that the way out of an error names, without the name of the program."""
    program, *arguments = shlex.split(error.fix.rpartition("To leave the file out: ")[2])
    assert program == "headrace"
    return arguments


def remove(runs: Runs, error: HeadraceError) -> tuple[int, ...]:
    assert "when the file is corrected or removed, run again" in error.fix
    runs.file(2).unlink()
    return ()


def correct(runs: Runs, error: HeadraceError) -> tuple[int, ...]:
    runs.arrive(2)
    return (2,)


def replace(runs: Runs, error: HeadraceError) -> tuple[int, ...]:
    runs.file(2).unlink()
    runs.arrive(2, beside="-again")
    return (2,)


def skip_it(runs: Runs, error: HeadraceError) -> tuple[int, ...]:
    done = CliRunner().invoke(app, command_of(error))
    assert (done.exit_code, done.output) == (0, f"{runs.file(2)}: skipped from the next run\n")
    return ()


HEAL = {"removed": remove, "corrected": correct, "replaced": replace, "skipped": skip_it}


def each_healing(on_spark: str) -> pytest.MarkDecorator:
    """Every way to heal in this process; on Spark one of them, and the others in `make verify`."""
    cases = [pytest.param("here", heal, id=f"here-{name}") for name, heal in HEAL.items()]
    for name, heal in HEAL.items():
        marks = [] if name == on_spark else [pytest.mark.verify]
        cases.append(pytest.param("spark", heal, id=f"spark-{name}", marks=marks))
    return pytest.mark.parametrize(("engine", "heal"), cases, indirect=["engine"])


@each_healing(on_spark="corrected")
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_bad_file_wedges_no_later_run(form: Format, heal: Any, engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, form, engine)
    runs.arrive(1)
    runs.run()
    runs.arrive(2, bad=True)
    runs.arrive(3)
    assert str(runs.fail()) == str(runs.fail()), "nothing heals by itself"
    assert runs.table == totals_of(1)
    healed = heal(runs, runs.fail())
    runs.run()
    assert runs.table == totals_of(1, *healed, 3)
    last = inspect(tmp_path / "c").tick
    runs.run()
    assert inspect(tmp_path / "c").tick == last, "nothing is left to read"
    runs.arrive(4)
    runs.run()
    assert runs.table == totals_of(1, *healed, 3, 4)


@each_healing(on_spark="removed")
def test_the_first_file_of_all_may_be_bad(heal: Any, engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["csv"], engine)
    runs.arrive(2, bad=True)
    runs.arrive(3)
    healed = heal(runs, runs.fail())
    runs.run()
    assert runs.table == totals_of(*healed, 3)


def test_a_bad_file_that_was_the_last_one_left_may_be_removed(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["csv"], engine)
    runs.arrive(1)
    runs.run()
    runs.file(1).unlink()
    runs.arrive(2, bad=True)
    remove(runs, runs.fail())
    runs.run()
    assert runs.table == totals_of(1)
    runs.arrive(3)
    runs.run()
    assert runs.table == totals_of(1, 3)


@each_healing(on_spark="skipped")
def test_ticks_of_one_file_stay_ticks_of_one_file(heal: Any, engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine, files_per_tick=1)
    for number in (1, 2, 3, 4):
        runs.arrive(number, bad=number == 2)
    healed = heal(runs, runs.fail())
    assert runs.table == totals_of(1)
    runs.run()
    assert runs.table == totals_of(1, *healed, 3, 4)


def test_a_file_that_comes_back_is_read_once(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["csv"], engine)
    runs.arrive(1)
    runs.run()
    runs.arrive(2, bad=True)
    runs.fail()
    runs.file(2).unlink()
    runs.run()
    assert runs.table == totals_of(1)
    runs.arrive(2)
    runs.run()
    runs.run()
    assert runs.table == totals_of(1, 2)


def commanded(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_skipped_file_may_be_read_after_all(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["csv"], engine)
    runs.arrive(1)
    runs.run()
    assert commanded("skip", tmp_path / "c") == "no file is skipped\n"
    runs.arrive(2)
    skip_file(tmp_path / "c", runs.file(2))
    assert commanded("skip", tmp_path / "c") == f"{runs.file(2)}\n"
    assert f"skipped: {runs.file(2)}\n" in commanded("state", tmp_path / "c")
    runs.run()
    assert runs.table == totals_of(1)
    told = commanded("skip", tmp_path / "c", runs.file(2), "--undo")
    assert told == f"{runs.file(2)}: read again from the next run\n"
    runs.run()
    assert runs.table == totals_of(1, 2)


def test_only_what_is_there_can_be_skipped(tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["csv"], None)
    runs.arrive(1)
    assert "is not the folder of a checkpoint" in commanded("skip", tmp_path / "c", runs.file(1), code=2)
    runs.run()
    assert "there is no file" in commanded("skip", tmp_path / "c", runs.file(2), code=2)
    assert "is not skipped" in commanded("skip", tmp_path / "c", runs.file(1), "--undo", code=2)


def test_rows_that_were_read_of_a_skipped_file_stay(tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], None)
    runs.tick_rows = 5
    runs.arrive(2, bad=True)
    skip_it(runs, runs.fail())
    runs.run()
    assert runs.table.total() == 4
    assert sum(n for _, _, n in runs.table) == 5


def test_what_is_committed_and_not_published_is_not_planned_anew(spark: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], spark)
    runs.arrive(1)
    runs.arrive(2)
    with (
        mock.patch.object(DriverSink, "publish", side_effect=OSError("killed")),
        pytest.raises(OSError, match="killed"),
    ):
        runs.run()
    assert runs.table == Counter()
    assert inspect(tmp_path / "c").tick == 1
    runs.file(1).unlink()  # they are not read again
    runs.file(2).unlink()
    runs.arrive(3)
    runs.run()
    assert runs.table == totals_of(1, 2, 3)


def test_rows_of_a_tick_that_failed_may_be_given_otherwise(spark: Any, tmp_path: Path) -> None:
    flow = Flow("inverses")
    flow.sink("inverses", flow.source("numbers", Number).map(inverse))

    def go_on(*batches: list[int]) -> list[Any]:
        found: list[Any] = []
        rows = io.Rows([[Number(of) for of in batch] for batch in batches])
        run_on_spark(
            flow, spark, sources={"numbers": rows}, sinks={"inverses": found}, checkpoint=tmp_path / "c"
        )
        return [change.row.of for change in found]

    assert go_on([1, 2]) == [60, 30]
    with pytest.raises(HeadraceError):
        go_on([1, 2], [3], [0, 4], [5])
    assert go_on([1, 2], [3], [4]) == [15]
    assert go_on([1, 2], [3], [4], [6], []) == [10]
    assert go_on([1, 2], [3], [4], [6], [], [5]) == [12]
    assert go_on([1, 2], [3], [4], [6], [], [5]) == []


# --- files that change after they were read ---------------------------------------------------------


@pytest.mark.parametrize("change", ["grew", "changed"])
def test_a_file_that_changes_after_it_was_read_is_refused_by_name(
    engine: Any, change: str, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine)
    runs.arrive(2)
    runs.run()
    content = runs.file(2).read_bytes()
    runs.file(2).write_bytes(content * 2 if change == "grew" else content[::-1])
    runs.arrive(3)
    with pytest.raises(InputChanged, match=rf"2\.json {change} after it was read") as raised:
        runs.run()
    assert runs.table == totals_of(2)
    skip_it(runs, raised.value)
    runs.run()
    assert runs.table == totals_of(2, 3)


def test_a_file_that_changes_during_a_run_is_refused(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine)
    runs.arrive(1)

    def append(progress: Any) -> None:
        with runs.file(1).open("ab") as file:
            file.write(b'{"item": 1, "price": 1}\n')

    with pytest.raises(InputChanged, match="grew"):
        runs.run(follow=True, on_tick=append)
    assert runs.table == totals_of(1)


def test_a_file_that_is_removed_after_it_was_read_is_not_missed(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine)
    runs.arrive(1)
    runs.run()
    runs.file(1).unlink()
    runs.arrive(2)
    runs.run()
    assert runs.table == totals_of(1, 2)


def test_a_file_that_is_written_again_under_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{}")
    taken: dict[Any, Any] = {}
    files = PendingFiles(Listing("bids", str(tmp_path)), taken)
    (file,) = files.look(may_be_none=False)
    taken[file.name] = file.position(DONE)
    files.finished(file)
    (tmp_path / "1.json").unlink()
    with mock.patch("time.monotonic", return_value=time.monotonic() + 60):
        assert files.look(may_be_none=True) == []
    (tmp_path / "1.json").write_text("{ }")
    with (
        mock.patch("time.monotonic", return_value=time.monotonic() + 120),
        pytest.raises(InputChanged, match="grew"),
    ):
        files.look(may_be_none=True)


def test_a_file_that_is_corrected_before_its_turn_is_read_as_it_is_then(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine, files_per_tick=1)
    runs.arrive(1)
    runs.arrive(2, bad=True)
    runs.run(on_tick=lambda done: runs.arrive(2) if done.tick == 1 else None)
    runs.run()
    assert runs.table == totals_of(1, 2)


def test_a_name_that_is_not_utf_8_is_a_name(engine: Any, tmp_path: Path) -> None:
    runs = Runs(tmp_path, FORMATS["json"], engine)
    runs.arrive(1)
    runs.file(1).rename(os.fsdecode(os.fsencode(tmp_path / "in") + b"/\xff.json"))
    runs.run()
    assert runs.table == totals_of(1)


def test_where_a_folder_does_not_tell_of_changes_it_is_listed_now_and_then(tmp_path: Path) -> None:
    files = PendingFiles(Listing("bids", str(tmp_path)), {})
    state = (0, 0, 0, 0)
    with mock.patch.object(PendingFiles, "_folder_changed", return_value=state):
        assert files.look(may_be_none=True) == []
        (tmp_path / "1.json").write_text("{}")
        assert files.look(may_be_none=True) == []
        with mock.patch("time.monotonic", return_value=time.monotonic() + 60):
            assert [file.name for file in files.look(may_be_none=True)] == ["1.json"]
