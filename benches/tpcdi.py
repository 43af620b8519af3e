"""Refreshes of a brokerage's warehouse after TPC-DI, by Headrace and by a Spark job that computes all anew.

    PYTHONPATH=. python benches/tpcdi.py [--customers 20000]

The tables are those of the published schema of TPC-DI in small: customers and accounts with their history
(SCD 2), trades, holdings, cash balances, the market with the highest and lowest prices of 52 weeks, earnings
of four quarters, and prospects. The data are our own, from a seed: a first batch of three years, and two of
a day each. It is no TPC-DI result, which would need its generator and its rules. Every table of
benches/brokerage has to be incremental (`incremental_strict`).

Costs are CPU seconds of all processes, and wall seconds, of commands in processes of their own. All tables
are compared after each batch. The exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benches.measure import LiveTable
from benches.pipeline_refresh import Runner, compare_tables, headrace, show_bytes

PROJECT = Path(__file__).parent / "brokerage"
JOB = Path(__file__).parent / "contestants/spark_brokerage.py"
TABLES = (
    "customer_versions",
    "account_versions",
    "dim_customer",
    "dim_account",
    "trades",
    "dim_trade",
    "fact_holdings",
    "fact_cash_balances",
    "yearly_earnings",
    "fact_market_history",
    "prospect",
)
FIRST, DAYS = date(2023, 1, 2), 3 * 365
LAST_NAMES, CITIES = 2_000, 300
PRICE, FEE = pl.Decimal(10, 2), pl.Decimal(8, 2)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--customers", type=int, default=20_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not measure(Path(folder), given.customers):
            raise SystemExit(1)


def measure(folder: Path, customers: int) -> bool:
    """Run three batches by both; return whether all tables are equal after each."""
    project, batch = folder / "project", folder / "batch"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
    batch.mkdir()
    ours = headrace(project)
    job = [sys.executable, str(JOB), str(project), str(batch / "out")]
    theirs = Runner(
        "Spark's batch", batch, job, lambda table: f"{batch}/out/{table}/*.parquet", batch / "out"
    )
    shown = LiveTable(
        f"{customers:,} customers: CPU s / wall s",
        f"{'batch':22}",
        *(f"{r.name:>17}" for r in (ours, theirs)),
    )
    brokerage, same = Brokerage(project / "input", customers), True
    for number in (1, 2, 3):
        brokerage.add(number)
        shown.add(str(number), *(runner.measure(f"batch {number}", runner.run) for runner in (ours, theirs)))
        same &= compare_tables([ours, theirs], theirs, TABLES, {})
    for number in (2, 3):
        name = f"batch {number}"
        if name in ours.costs and name in theirs.costs:
            print(f"Batch {number} costs {theirs.costs[name].cpu / ours.costs[name].cpu:.1f} times less.")
    show_bytes([ours], project / "input")
    return same


@dataclass
class Brokerage:
    """Seeded input of a brokerage, batch by batch, in a folder. customers: in the first batch."""

    folder: Path
    customers: int

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(7)
        self.accounts = self.customers * 3 // 2
        self.trades = 0
        self.symbols = np.array([f"S{number:05}" for number in range(max(50, self.customers // 40))])
        self.closes = self.draw.integers(1_000, 50_000, len(self.symbols))

    def add(self, number: int) -> None:
        """Add the input of a batch: the first is of three years, later ones are of a day each."""
        first = number == 1
        days = [FIRST + timedelta(days=at) for at in range(DAYS)] if first else [self._day(number)]
        self._customers(number, days)
        self._accounts(number, days)
        self._trades(number, days)
        self._cash(number, days)
        self._market(number, days)
        if first:
            self._securities()
        self._financials(number)
        self._prospects(number)

    @staticmethod
    def _day(number: int) -> date:
        return FIRST + timedelta(days=DAYS + number - 2)

    def _write(self, name: str, number: int, columns: Mapping[str, Any], types: Mapping[str, Any]) -> None:
        frame = pl.DataFrame(
            {
                n: pl.Series(n, values).cast(types.get(n, pl.Series(n, values).dtype))
                for n, values in columns.items()
            }
        )
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        frame.write_parquet(self.folder / name / f"{number}.parquet", compression="snappy")

    def _moments(self, days: list[date], count: int) -> np.ndarray[Any, Any]:
        start = np.datetime64(datetime.combine(days[0], datetime.min.time()), "us")
        span = len(days) * 86_400_000_000
        return start + np.sort(self.draw.choice(span, count, replace=False)).astype("timedelta64[us]")

    def _some(self, values: list[str], count: int) -> np.ndarray[Any, Any]:
        return np.array(values)[self.draw.integers(0, len(values), count)]

    def _records(self, known: int, number: int, days: list[date], changed: int) -> tuple[Any, Any, int]:
        """Return the ids and moments of records, and how many ids there are then.

        All come on the first day of the first batch, and some change later; in later batches a few are new.
        """
        if number == 1:
            ids = np.concatenate([np.arange(known), self._chosen(known, changed)])
            return (
                ids,
                np.concatenate([self._moments(days[:1], known), self._moments(days[1:], changed)]),
                known,
            )
        new = max(1, known // 1_000)
        ids = np.concatenate([np.arange(known, known + new), self._chosen(known, new)])
        return ids, self._moments(days, len(ids)), known + new

    def _customers(self, number: int, days: list[date]) -> None:
        ids, at, self.customers = self._records(self.customers, number, days, self.customers // 3)
        count = len(ids)
        columns = {
            "c_id": ids,
            "at": at,
            "tier": self.draw.integers(1, 4, count),
            "last_name": [f"Name{n}" for n in ids * 7 % LAST_NAMES],
            "first_name": [f"First{n}" for n in ids * 13 % 500],
            "born": np.datetime64("1940-01-01")
            + self.draw.integers(0, 25_000, count).astype("timedelta64[D]"),
            "city": [f"City{n}" for n in self.draw.integers(0, CITIES, count)],
            "status": np.where(self.draw.random(count) < 0.95, "ACTV", "INAC"),
            "credit": self.draw.integers(300, 850, count),
            "net_worth": self.draw.integers(0, 2_000_000, count),
        }
        self._write("customers", number, columns, {"tier": pl.Int32, "credit": pl.Int32, "born": pl.Date})

    def _chosen(self, most: int, count: int) -> np.ndarray[Any, Any]:
        return self.draw.choice(most, count, replace=False)

    def _accounts(self, number: int, days: list[date]) -> None:
        ids, at, self.accounts = self._records(self.accounts, number, days, self.accounts // 10)
        columns = {
            "ca_id": ids,
            "at": at,
            "c_id": ids % self.customers,
            "broker": ids % 997,
            "name": [f"Account{n}" for n in ids],
            "status": np.where(self.draw.random(len(ids)) < 0.97, "ACTV", "INAC"),
        }
        self._write("accounts", number, columns, {})

    def _trades(self, number: int, days: list[date]) -> None:
        """Add trades, each of which is submitted and then completed or cancelled, and what they hold."""
        count = len(days) * max(1, self.customers // 100)
        ids = np.arange(self.trades, self.trades + count)
        self.trades += count
        account, symbol = (
            self.draw.integers(0, self.accounts * 99 // 100, count),
            self.symbols[self.draw.integers(0, len(self.symbols), count)],
        )
        begun = self._moments(days[1:] or days, count)
        ended = begun + self.draw.integers(1, 600_000_000, count).astype("timedelta64[us]")
        price, quantity = self.draw.integers(1_000, 50_000, count), self.draw.integers(1, 1_000, count)
        kind = self._some(["TMB", "TMS", "TLB", "TLS"], count)
        done = np.where(self.draw.random(count) < 0.95, "CMPT", "CNCL")
        both = np.arange(2 * count) % count
        columns = {
            "t_id": ids[both],
            "at": np.concatenate([begun, ended]),
            "status": np.concatenate([np.full(count, "SBMT"), done]),
            "kind": kind[both],
            "symbol": symbol[both],
            "quantity": quantity[both],
            "ca_id": account[both],
            "price": pl.Series(price[both]).cast(pl.Decimal(12, 0)) / 100,
            "fee": pl.Series(np.concatenate([np.zeros(count, np.int64), price % 500])).cast(pl.Decimal(12, 0))
            / 100,
        }
        self._write("trades", number, columns, {"quantity": pl.Int32, "price": PRICE, "fee": PRICE})
        held = done == "CMPT"
        holdings = {
            "t_id": ids[held],
            "first_t_id": ids[held] - ids[held] % 5,
            "before": np.zeros(int(held.sum()), np.int32),
            "after": quantity[held],
        }
        self._write("holdings", number, holdings, {"before": pl.Int32, "after": pl.Int32})

    def _cash(self, number: int, days: list[date]) -> None:
        count = len(days) * max(1, self.customers // 100)
        amount = pl.Series(self.draw.integers(-100_000, 200_000, count)).cast(pl.Decimal(12, 0)) / 100
        columns = {
            "ca_id": self.draw.integers(0, self.accounts, count),
            "at": self._moments(days, count),
            "amount": amount,
        }
        self._write("cash", number, columns, {"amount": PRICE})

    def _market(self, number: int, days: list[date]) -> None:
        rows: list[tuple[date, Any]] = []
        for day in days:
            self.closes = np.clip(self.closes + self.draw.integers(-200, 210, len(self.closes)), 500, 90_000)
            rows.append((day, self.closes))
        closes = np.concatenate([each for _, each in rows])
        columns = {
            "day": np.repeat(np.array(days, "datetime64[D]"), len(self.symbols)),
            "symbol": np.tile(self.symbols, len(days)),
            "close": pl.Series(closes).cast(pl.Decimal(12, 0)) / 100,
            "high": pl.Series(closes + self.draw.integers(0, 300, len(closes))).cast(pl.Decimal(12, 0)) / 100,
            "low": pl.Series(closes - self.draw.integers(0, 300, len(closes))).cast(pl.Decimal(12, 0)) / 100,
            "volume": self.draw.integers(100, 1_000_000, len(closes)),
        }
        self._write("market", number, columns, {"day": pl.Date, "close": FEE, "high": FEE, "low": FEE})

    def _securities(self) -> None:
        count = len(self.symbols)
        dividend = pl.Series(self.draw.integers(0, 900, count)).cast(pl.Decimal(12, 0)) / 100
        columns = {
            "symbol": self.symbols,
            "name": [f"Share {n}" for n in range(count)],
            "company": np.arange(count) // 2,
            "exchange": self._some(["NYSE", "NASDAQ", "AMEX"], count),
            "dividend": dividend,
        }
        self._write("securities", 1, columns, {"dividend": FEE})

    def _financials(self, number: int) -> None:
        companies = np.arange((len(self.symbols) + 1) // 2)
        quarters = [(2022 + at // 4, at % 4 + 1) for at in range(4 * 4)] if number == 1 else []
        if number == 2:
            quarters, companies = [(2026, 1)], companies[:3]
        if not quarters:
            return
        count = len(quarters) * len(companies)
        columns = {
            "company": np.tile(companies, len(quarters)),
            "year": np.repeat([y for y, _ in quarters], len(companies)),
            "quarter": np.repeat([q for _, q in quarters], len(companies)),
            "earnings": pl.Series(self.draw.integers(-100, 1_000, count)).cast(pl.Decimal(12, 0)) / 100,
        }
        self._write("financials", number, columns, {"year": pl.Int32, "quarter": pl.Int32, "earnings": FEE})

    def _prospects(self, number: int) -> None:
        """Write the file of prospects anew: in later batches one in a hundred has changed."""
        if number == 1:
            self._prospect_rows(np.arange(self.customers))
        else:
            self._prospect_rows(self._chosen(len(self.prospects), max(1, len(self.prospects) // 100)))
        frame = self.prospects
        (self.folder / "prospects").mkdir(parents=True, exist_ok=True)
        frame.write_parquet(self.folder / "prospects/prospects.parquet", compression="snappy")

    def _prospect_rows(self, ids: np.ndarray[Any, Any]) -> None:
        count = len(ids)
        rows = pl.DataFrame(
            {
                "agency": [f"A{n}" for n in ids],
                "last_name": [f"NAME{n}" for n in ids * 7 % LAST_NAMES],
                "first_name": [f"First{n}" for n in ids * 13 % 500],
                "city": [f"City{n}" for n in self.draw.integers(0, CITIES, count)],
                "income": self.draw.integers(0, 300_000, count),
                "cars": self.draw.integers(0, 6, count).astype(np.int32),
                "children": self.draw.integers(0, 6, count).astype(np.int32),
                "age": self.draw.integers(18, 90, count).astype(np.int32),
                "credit": self.draw.integers(300, 850, count).astype(np.int32),
                "owns": self.draw.random(count) < 0.5,
                "net_worth": self.draw.integers(0, 2_000_000, count),
            }
        )
        if hasattr(self, "prospects"):
            rows = pl.concat([self.prospects.filter(~pl.col("agency").is_in(rows["agency"].to_list())), rows])
        self.prospects = rows.sort("agency")


if __name__ == "__main__":
    main()
