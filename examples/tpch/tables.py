"""The tables of TPC-H, their rows, and changes to them."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import Change, delete, insert
from headrace.expr.types import DATE, INT32, INT64, STR, DataType, DecimalType, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Row: TypeAlias = tuple[Any, ...]
Changes: TypeAlias = dict[str, list[Change[Row]]]
"""What comes and goes, by table."""

_MONEY = DecimalType(15, 2)


def _table(**columns: DataType) -> Schema:
    return Schema(tuple(Field(name, type, nullable=False) for name, type in columns.items()))


TABLES = {
    "region": _table(r_regionkey=INT32, r_name=STR, r_comment=STR),
    "nation": _table(n_nationkey=INT32, n_name=STR, n_regionkey=INT32, n_comment=STR),
    "supplier": _table(
        s_suppkey=INT64, s_name=STR, s_address=STR, s_nationkey=INT32, s_phone=STR, s_acctbal=_MONEY,
        s_comment=STR,
    ),
    "customer": _table(
        c_custkey=INT64, c_name=STR, c_address=STR, c_nationkey=INT32, c_phone=STR, c_acctbal=_MONEY,
        c_mktsegment=STR, c_comment=STR,
    ),
    "part": _table(
        p_partkey=INT64, p_name=STR, p_mfgr=STR, p_brand=STR, p_type=STR, p_size=INT32, p_container=STR,
        p_retailprice=_MONEY, p_comment=STR,
    ),
    "partsupp": _table(
        ps_partkey=INT64, ps_suppkey=INT64, ps_availqty=INT64, ps_supplycost=_MONEY, ps_comment=STR
    ),
    "orders": _table(
        o_orderkey=INT64, o_custkey=INT64, o_orderstatus=STR, o_totalprice=_MONEY, o_orderdate=DATE,
        o_orderpriority=STR, o_clerk=STR, o_shippriority=INT32, o_comment=STR,
    ),
    "lineitem": _table(
        l_orderkey=INT64, l_partkey=INT64, l_suppkey=INT64, l_linenumber=INT64, l_quantity=_MONEY,
        l_extendedprice=_MONEY, l_discount=_MONEY, l_tax=_MONEY, l_returnflag=STR, l_linestatus=STR,
        l_shipdate=DATE, l_commitdate=DATE, l_receiptdate=DATE, l_shipinstruct=STR, l_shipmode=STR,
        l_comment=STR,
    ),
}  # fmt: skip


def queries() -> dict[str, str]:
    """Return the text of each query, by name: "q01" to "q22"."""
    files = sorted((Path(__file__).parent / "queries").glob("*.sql"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def generate(folder: Path, scale: float) -> None:
    """Write the tables as `folder/NAME.parquet`. scale: 1 is 1 GB of text, 6M line items."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([program, "parquet", "-s", str(scale), f"--output-dir={folder}"], check=True)


def read(folder: Path, name: str) -> list[Row]:
    """Return the rows of a table that `generate` wrote."""
    import pyarrow.parquet as pq

    columns = pq.read_table(folder / f"{name}.parquet").to_pydict()
    return list(zip(*(columns[column] for column in TABLES[name].names), strict=True))


def write_ticks(folder: Path, loaded: Path, tables: Iterable[str], ticks: Iterable[Changes]) -> None:
    """Write a folder per table with a file for each tick: what `generate` wrote to `loaded`, then changes.

    A tick that leaves a table as it is has an empty file of it.
    """
    import pyarrow.parquet as pq

    from headrace.io.arrow import rows_to_table

    for name in tables:
        (folder / name).mkdir(parents=True)
        (folder / name / "0000.parquet").hardlink_to(loaded / f"{name}.parquet")
    for number, changes in enumerate(ticks, 1):
        for name in tables:
            rows = [(*change.row, change.weight) for change in changes.get(name, ())]
            table = rows_to_table(rows, TABLES[name], weighted=True)
            pq.write_table(table, folder / name / f"{number:04d}.parquet")


@dataclass(slots=True)
class Business:
    """Changes of the tables, tick by tick: orders come with their line items or go, accounts change.

    rows:  of orders, lineitem, customer and supplier.
    share: of the orders that a tick changes, at least one.
    """

    rows: dict[str, list[Row]]
    choice: random.Random
    share: float = 0.001
    _items: dict[int, list[Row]] = field(default_factory=dict[int, list[Row]])
    _ticks: int = 0

    def __post_init__(self) -> None:
        for item in self.rows["lineitem"]:
            self._items.setdefault(item[0], []).append(item)

    def ticks(self, count: int) -> Iterator[Changes]:
        for _ in range(count):
            self._ticks += 1
            changes = self._come() if self._ticks % 2 else self._go()
            for table, balance in (("customer", "c_acctbal"), ("supplier", "s_acctbal")):
                changes[table] = self._account(table, balance)
            yield changes

    def _some_orders(self) -> list[int]:
        """Return places of orders, the last first."""
        orders = self.rows["orders"]
        count = min(len(orders), max(1, int(len(orders) * self.share)))
        return sorted(self.choice.sample(range(len(orders)), count), reverse=True)

    def _come(self) -> Changes:
        orders = self.rows["orders"]
        changes: Changes = {"orders": [], "lineitem": []}
        for at in self._some_orders():
            key = 10**9 * self._ticks + orders[at][0]
            order = (key, *orders[at][1:])
            self._items[key] = [(key, *item[1:]) for item in self._items[orders[at][0]]]
            orders.append(order)
            changes["orders"].append(insert(order))
            changes["lineitem"] += map(insert, self._items[key])
        return changes

    def _go(self) -> Changes:
        changes: Changes = {"orders": [], "lineitem": []}
        for at in self._some_orders():
            order = self.rows["orders"].pop(at)
            changes["orders"].append(delete(order))
            changes["lineitem"] += map(delete, self._items.pop(order[0]))
        return changes

    def _account(self, table: str, balance: str) -> list[Change[Row]]:
        rows, column = self.rows[table], TABLES[table].names.index(balance)
        at = self.choice.randrange(len(rows))
        before = rows[at]
        amount = Decimal(self.choice.randrange(-99_999, 999_999)) / 100
        rows[at] = (*before[:column], amount.quantize(Decimal("0.01")), *before[column + 1 :])
        return [delete(before), insert(rows[at])]
