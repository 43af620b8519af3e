"""The cell magic `%%headrace_sql`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace import Flow
from headrace.errors import BadInput, HeadraceError
from headrace.sql_magic import _CellQuery, load_ipython_extension
from tests.golden import assert_golden
from tests.notebook.execution import html_of, run_cells, text_of


class Order(NamedTuple):
    shop: str
    price: int


class Shell:
    """What the magic needs of IPython."""

    def __init__(self, **variables: Any) -> None:
        self.user_ns = variables
        self.magic: Any = None
        load_ipython_extension(self)

    def register_magic_function(self, magic: Any, kind: str, name: str) -> None:
        assert (kind, name) == ("cell", "headrace_sql")
        self.magic = magic


MISTAKES = {
    "no tables": "totals",
    "unknown option": "totals --tabel orders",
    "unfinished quote": "totals --table 'orders",
    "no variable": "totals --table orders=ordrs",
    "no identifier": "my-totals --table orders",
    "no rows": "totals --table empty",
    "no columns": "totals --table number",
    "stream and rows": "totals --table stream --table orders",
    "two flows": "totals --table stream --table other",
    "builtin": "print --table orders",
    "own variable": "orders --table orders",
    "table twice": "totals --table orders --source orders=empty",
    "tuples": "totals --table tuples",
    "dicts": "totals --table dicts",
    "other class": "totals --table text=Shell",
}


def test_mistakes_in_the_line_say_what_to_write() -> None:
    streams = {name: Flow(name).source("orders", Order) for name in ("stream", "other")}
    shell = Shell(
        orders=[Order("a", 1)], empty=[], number=7, tuples=[(1, 2)], dicts=[{"a": 1}], Shell=Shell, **streams
    )
    texts: list[str] = []
    for mistake, line in MISTAKES.items():
        with pytest.raises(HeadraceError) as error:
            shell.magic(line, "SELECT 1\n")
        texts.append(f"--- {mistake}\n{error.value}\n")
    assert_golden(Path(__file__).parent / "sql_magic_mistakes.txt", "\n".join(texts))


def test_the_magic_has_its_meaning_as_help() -> None:
    assert "--table TABLE[=VARIABLE]" in Shell().magic.__doc__


@pytest.mark.spark
@pytest.mark.verify
def test_queries_run_over_rows_frames_and_streams(tmp_path: Path) -> None:
    query = "SELECT shop, sum(price) AS revenue FROM orders GROUP BY shop HAVING sum(price) > 1"
    made = run_cells(
        tmp_path,
        "%load_ext headrace\nimport headrace as hr, polars as pl\nfrom typing import NamedTuple\n"
        "class Order(NamedTuple):\n    shop: str\n    price: int\n"
        'orders = [Order("bath", 5), Order("york", 1)]\n'
        'frame = pl.DataFrame({"shop": ["bath", "york"], "price": [7, 1]})\npandas = frame.to_pandas()',
        f"%%headrace_sql totals --table orders\n{query}",
        'totals.tick(orders=[hr.insert(Order("bath", 1))])["totals"]',
        f"%%headrace_sql --table orders=frame\n{query}",
        f"%%headrace_sql --source orders=pandas\n{query}",
        'flow = hr.Flow("shops")\nstream = flow.table("orders", Order)',
        f"%%headrace_sql totals --table orders=stream\n{query}",
        f"%%headrace_sql totals --table orders=stream\n{query}",
        'hr.Engine(flow).tick(orders=[hr.insert(Order("bath", 9))])["totals"].raw',
        "%%headrace_sql --table orders\nSELECT\n  prize FROM orders",
        failing=[9],
    )
    assert all(text in html_of(made[1]) for text in ("revenue", "bath", "5"))
    assert "york" not in html_of(made[1])
    assert ">6<" in html_of(made[2])
    assert "7" in html_of(made[3])
    assert "7" in html_of(made[4])
    assert "<svg" in html_of(made[6])
    assert "<svg" in html_of(made[7])
    assert text_of(made[8]) == "[('bath', 9, 1)]"
    assert "UnsupportedQuery" in text_of(made[9])
    assert "%%headrace_sql:" in text_of(made[9])


def frames() -> dict[str, Any]:
    import pandas as pd
    import pyarrow as pa

    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    return {
        "same": pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        "mixed": pd.DataFrame({"a": [1, "x"]}),
        "twice": twice,
        "complex": pd.DataFrame({"a": [1j]}),
    }


@pytest.mark.parametrize("name", ["mixed", "same", "twice", "complex"])
def test_a_frame_that_no_flow_reads_is_named_with_its_column(name: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyspark")
    with pytest.raises(BadInput, match=f"table '{name}': .* cannot be read"):
        Shell(**frames()).magic(f"--table {name}", "SELECT 1\n")


def test_times_without_a_zone_and_narrow_numbers_are_columns() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyspark")
    frame = pd.DataFrame({"at": pd.to_datetime(["2025-01-01"]), "x": pd.array([1.5], dtype="float32")})
    frame["n"] = pd.array([7], dtype="uint8")
    frame["d"] = pd.to_timedelta(["1s"])
    query = _CellQuery.parse("--table t", "SELECT 1", {"t": frame})
    columns = query._columns("t", frame)
    assert (
        str(query._schema("t", columns))
        == "(at: timestamp?, x: float64?, n: int64?, d: interval day to second?)"
    )
    assert columns.to_pylist() == [
        {"at": datetime(2025, 1, 1, tzinfo=UTC), "x": 1.5, "n": 7, "d": timedelta(seconds=1)}
    ]


@pytest.mark.parametrize("line", ["class --table t", "out --table t.b=t", "out --source 1=t"])
def test_names_that_cannot_be_written_are_refused(line: str) -> None:
    with pytest.raises(BadInput, match="cannot be a name"):
        Shell(t=[Order("a", 1)]).magic(line, "SELECT 1\n")


def test_a_frame_has_its_columns_in_whole_microseconds_without_an_index() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyspark")
    before = [pd.Timestamp(1, unit="ns"), pd.Timestamp(-1, unit="ns")]
    frame = pd.DataFrame({"at": before, "small": pd.array([1, 2], dtype="int8")}, index=[7, 9])
    query = _CellQuery.parse("--table t", "SELECT 1", {"t": frame})
    columns = query._columns("t", frame)
    assert str(query._schema("t", columns)) == "(at: timestamp?, small: int32?)"
    assert columns["at"].cast("int64").to_pylist() == [0, -1]
