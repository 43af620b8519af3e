"""Nexmark query 4, the average closing price per category, kept up to date on Spark.

python -m examples.nexmark.demo                # on Spark; needs no Java on the machine
python -m examples.nexmark.demo --on here      # in this process; needs no Spark
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import headrace as hr
from examples.nexmark.files import write_chunks
from examples.nexmark.generator import Generator
from examples.nexmark.queries import q4
from examples.nexmark.screen import Screen
from examples.nexmark.spark_alone import averages_unchecked, refusals
from headrace import io

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Averages = dict[int, float]


def main(arguments: list[str] | None = None, console: Console | None = None) -> None:
    """Run the demonstration. Raises `SystemExit` if an answer is wrong."""
    parser = argparse.ArgumentParser(description="Nexmark query 4, kept up to date.")
    parser.add_argument("--on", choices=["spark", "here"], default="spark")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=20)
    given = parser.parse_args(arguments)
    console = console or Console(highlight=False)
    chunk = -(-given.events // given.ticks)
    ticks = -(-given.events // chunk)
    with TemporaryDirectory(prefix="headrace-demo-") as name:
        folder = Path(name)
        console.rule("The flow: what streams, what waits, and why")
        console.print(hr.explain(q4()), markup=False, soft_wrap=True)
        with console.status("writing events"):
            write_chunks(folder, given.events, chunk=chunk)
        events = f"{given.events:,} events of an auction site"
        console.print(f"{events}, as JSON files; a tick takes {chunk:,} of them.\n")
        if given.on == "here":
            check(console, run_here(console, folder, ticks), given.events)
        else:
            spark = start_spark(console)
            averages = run_on_spark(console, spark, folder, ticks)
            check(console, averages, given.events)
            compare_with_spark_alone(console, spark, folder, ticks, averages)


def sources(folder: Path) -> dict[str, io.JsonFiles]:
    """What the flow reads: the files that arrive in a folder per source, one of each in a tick."""
    return {name: io.JsonFiles(folder / name, files_per_tick=1) for name in q4().graph().sources}


def run_here(console: Console, folder: Path, ticks: int) -> Averages:
    console.rule("The averages as the files arrive, in this process")
    with Screen(console, ticks) as screen:
        hr.run(
            q4(),
            sources=sources(folder),
            sinks={"q4": screen.changed},
            on_tick=lambda tick: screen.ticked(tick.rows_in, tick.seconds),
        )
    return screen.averages


def run_on_spark(console: Console, spark: SparkSession, folder: Path, ticks: int) -> Averages:
    console.rule("The averages as the files arrive, on Spark")
    with Screen(console, ticks) as screen:
        hr.spark.run(
            q4(),
            spark,
            sources=sources(folder),
            sinks={"q4": screen.changed},
            checkpoint=folder / "checkpoint",
            on_tick=lambda tick: screen.ticked(tick.rows_in, tick.seconds),
        )
    return screen.averages


def start_spark(console: Console) -> SparkSession:
    started = time.perf_counter()
    with console.status("starting Spark"):
        spark = hr.spark.session()
    console.print(f"Spark {spark.version} started in {time.perf_counter() - started:.1f} s.\n")
    return spark


def check(console: Console, averages: Averages, events: int) -> None:
    """Give all events to a new in-process engine, in one tick: the answer must be the same."""
    started = time.perf_counter()
    flow = q4()
    everything = Generator().tick(0, events)
    changes = hr.Engine(flow).tick(auctions=everything["auctions"], bids=everything["bids"])
    expected = {change.row.category: change.row.average for change in changes["q4"]}
    if averages != expected:
        raise SystemExit(f"The answers differ.\n  as the files arrived: {averages}\n  at once: {expected}")
    console.print(
        f"[bold green]Checked[/]: the in-process engine, given all {events:,} events in one tick, answers "
        f"the same, to the last bit ({time.perf_counter() - started:.1f} s).\n",
        soft_wrap=True,
    )


def compare_with_spark_alone(
    console: Console, spark: SparkSession, folder: Path, ticks: int, averages: Averages
) -> None:
    """Run the same query as plain Structured Streaming, and show what Spark says to it."""
    console.rule("The same query as plain Structured Streaming")
    for refusal in refusals(spark, folder):
        if refusal.condition is None:
            console.print(f"[bold]{refusal.mode} mode[/]: Spark ran it.")
        else:
            console.print(f"[bold]{refusal.mode} mode[/]: refused, {refusal.condition}")
            console.print(f"  {refusal.message}\n", markup=False, style="red", soft_wrap=True)
    console.print("[bold]update mode, with the check turned off[/] as the message offers, in two batches:")
    with console.status("running"):
        unchecked = averages_unchecked(spark, folder, files_per_batch=-(-ticks // 2))
    table = Table()
    for column in ("category", "Spark answers", "right is"):
        table.add_column(column, justify="right")
    for category, right in sorted(averages.items()):
        given = unchecked.get(category)
        table.add_row(
            str(category), "nothing" if given is None else f"{given / 100:,.2f}", f"{right / 100:,.2f}"
        )
    console.print(table)


if __name__ == "__main__":
    main()
