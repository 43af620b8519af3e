"""The flights of 2001 as a stream: what changes each day, and the answers at the end.

    python -m examples.flights.run --data DATA                 # in this process
    python -m examples.flights.run --data DATA --on spark
    python -m examples.flights.run --data DATA --on spark --master 'local-cluster[2,1,1024]'

DATA is a folder with `flights-20k.json`, `airports.csv` and `flights-airport.csv`
of the public repository vega/vega-datasets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import headrace as hr
from examples.flights.flow import Destination, StateDelay, flow
from examples.flights.prepare import arrivals, read_flights, write
from headrace import io


def main() -> None:
    parser = argparse.ArgumentParser(description="Delays of US flights, kept up to date day by day.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the three files")
    parser.add_argument("--on", choices=["here", "spark"], default="here")
    parser.add_argument("--master", default="local[2]", help="of Spark, such as local-cluster[2,1,1024]")
    parser.add_argument("--days", type=int, default=21, help="how many days of flights (there are 90)")
    parser.add_argument("--start", default="ADK", help="the airport from which one wants to get away")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="headrace-flights-") as name:
        folder = Path(name)
        files = [*arrivals(read_flights(given.data), days=given.days)]
        write(folder / "flights", files)

        def show(tick: int, changes: Iterable[hr.Change[StateDelay]]) -> None:
            file, _ = files[tick - 1]
            show_changes(file, changes)

        reachable, unserved, delays = io.Memory(), io.Memory(), io.Memory()
        sinks: dict[str, io.SinkTarget] = {
            "worst": io.Call(show),
            "delays": delays,
            "reachable": reachable,
            "unserved": unserved,
        }
        if given.on == "here":
            hr.run(flow(given.start), sources(given.data, folder / "flights"), sinks)
        else:
            hr.spark.run(
                flow(given.start),
                hr.spark.session(master=given.master),
                sources=sources(given.data, folder / "flights"),
                sinks=sinks,
                checkpoint=folder / "checkpoint",
            )
        show_end(given.start, delays.rows(), reachable.rows(), unserved.rows())


def sources(data: Path, flights: Path) -> dict[str, io.Source]:
    """A file of flights per tick; airports and routes as they are."""
    return {
        "flights": io.JsonFiles(flights, files_per_tick=1),
        "airports": io.CsvFiles(data / "airports.csv"),
        "routes": io.CsvFiles(data / "flights-airport.csv"),
    }


def show_changes(file: str, changes: Iterable[hr.Change[StateDelay]]) -> None:
    print(file)
    for sign, weight in (("-", -1), ("+", 1)):
        rows = sorted((c.row for c in changes if c.weight == weight), key=lambda row: -row.average)
        print(f"  {sign} {', '.join(f'{row.state} {row.average:.2f}' for row in rows)}".rstrip())


def show_end(
    start: str, delays: list[StateDelay], reachable: list[Destination], unserved: list[Destination]
) -> None:
    worst = sorted(delays, key=lambda row: -row.average)[:5]
    print(f"\nThe worst of {len(delays)} states: {', '.join(f'{s} {a:.2f}' for s, _, a in worst)}")
    print(
        f"From {start} one gets to {len(reachable)} airports; to {len(unserved)} of them there was no flight,"
    )
    print(f"such as {', '.join(row.name for row in sorted(unserved)[:3])}.")


if __name__ == "__main__":
    main()
