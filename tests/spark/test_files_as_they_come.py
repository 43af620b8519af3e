"""Files as they come give the same rows on Spark as in this process, and CSV is written alike."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq

from headrace import Flow, col
from headrace.engine.run import run as run_here
from headrace.io import CsvChangelog, CsvFiles, Memory, ParquetFiles
from headrace.spark import run as run_on_spark
from tests.io.feeds import feed, read, write

pytestmark = pytest.mark.spark


class Item(NamedTuple):
    name: str
    note: str | None
    price: float | None


PLAIN = 'name,note,price\r\n"a, b","two\r\n""lines""",1.5\r\nKäse,,\r\n,"",-\r\n'
FILES: dict[str, tuple[dict[str, Any], bytes]] = {
    "plain": ({"null": "-"}, PLAIN.encode()),
    "bom": ({"null": ("-", "Käse")}, b"\xef\xbb\xbf" + PLAIN.replace("Käse,,", "x,Käse,").encode()),
    "semicolons": ({"sep": ";", "null": "-"}, PLAIN.replace(",", ";").encode()),
    "latin": ({"encoding": "latin-1", "null": "-"}, PLAIN.encode("latin-1")),
    "wide": ({"encoding": "utf-16", "null": "-"}, PLAIN.encode("utf-16")),
    "headless": ({"header": False, "null": "-"}, PLAIN.partition("\n")[2].encode()),
    "escaped": ({"escape": "\\", "quote": "'"}, b"name,note,price\n'it\\'s','a,\\\\b\n',2\n'','',\n"),
    "unquoted": ({"quote": "", "sep": "\t"}, b"name\tnote\tprice\n\"a\t'b\t1\n"),
}


def test_both_engines_read_and_write_csv_alike(spark: Any, tmp_path: Path) -> None:
    flow = Flow("items")
    for name, (_, content) in FILES.items():
        write(tmp_path / "in" / name / "a.csv", content)
        items = flow.source(name, Item)
        flow.sink(f"{name}_out", items.filter(col.price.is_null() | (col.price > 0)))
    here = answers(run_here, flow, tmp_path / "here")
    assert here == answers(run_on_spark, flow, tmp_path / "spark")
    assert here["plain"] == here["latin"] == here["wide"] == here["headless"]
    assert here["plain"] == Counter(
        [("a, b", 'two\r\n"lines"', 1.5, 1), ("Käse", None, None, 1), ("", None, None, 1)]
    )
    assert here["semicolons"][("a; b", 'two\r\n"lines"', 1.5, 1)] == 1
    assert here["escaped"] == Counter([("it's", "a,\\b\n", 2.0, 1), ("", None, None, 1)])
    assert here["unquoted"] == Counter([('"a', "'b", 1.0, 1)])
    assert here["bom"][("x", None, None, 1)] == 1


def answers(run: Callable[..., Any], flow: Flow, out: Path) -> dict[str, Counter[Any]]:
    """The rows of each sink, with weights, read back with the options with which they were written."""
    sources = {name: CsvFiles(out.parent / "in" / name, **options) for name, (options, _) in FILES.items()}
    sinks = {f"{name}_out": CsvChangelog(out / name, source.dialect) for name, source in sources.items()}
    run(flow, sources=sources, sinks=sinks)
    return {
        name: Counter(read(CsvFiles(out / name / "tick=*/*.csv", **FILES[name][0]), feed(Item, append=False)))
        for name in FILES
    }


class Price(NamedTuple):
    item: int
    price: float | None


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_spark_widens_columns_and_tells_of_each_once(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    for name, prices in {"a": [1.5, None], "b": [2, 3], "c": [4, None]}.items():
        table = pa.table({"item": pa.array([1, 2], pa.int32()), "price": prices})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    flow, here = Flow("prices"), Memory()
    flow.sink("all", flow.source("prices", Price).filter(col.item > 0))
    run_here(flow, {"prices": ParquetFiles(tmp_path)}, {"all": here})
    there = Memory()
    caplog.clear()
    with caplog.at_level(logging.INFO, "headrace.files"):
        run_on_spark(flow, sources={"prices": ParquetFiles(tmp_path)}, sinks={"all": there}, mode=mode)
    assert Counter(there.rows()) == Counter(here.rows())
    assert {(1, 2.0), (2, 3.0)} < set(here.rows())
    assert sorted(r.getMessage().partition(" in ")[0] for r in caplog.records) == [
        "source 'prices': column 'item' is int32",
        "source 'prices': column 'price' is int64",
    ]
