"""Cut the flights of 2001 into files that arrive day by day, with corrections now and then.

    python -m examples.flights.prepare --data DATA --to FOLDER

DATA holds `flights-20k.json` of the public repository vega/vega-datasets, an
array of 20,000 flights. FOLDER gets JSON lines with a column `weight`:

    2001-01-07-flights.json   the flights of a day, weight 1
    2001-01-07-revised.json   once a week: flights of the week that were cancelled
                              (weight -1) or amended (-1 as it was, 1 as it is)

The revisions are made up, out of the real flights and always the same ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from examples.flights.rows import Flight

Weighted: TypeAlias = tuple[Flight, int]

CANCELLED = 40
"""One flight in so many is cancelled afterwards."""

AMENDED = 20
"""One flight in so many gets another delay afterwards."""


def read_flights(data: Path) -> list[Flight]:
    """The flights of `flights-20k.json` in the folder `data`, in order of departure."""
    with (data / "flights-20k.json").open(encoding="utf-8") as file:
        return [_flight(**record) for record in json.load(file)]


def _flight(date: str, delay: int, distance: int, origin: str, destination: str) -> Flight:
    at = datetime.strptime(date, "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
    return Flight(at, delay, distance, origin, destination)


def revisions(flights: Iterable[Flight]) -> Iterator[Weighted]:
    """What is taken back of `flights`, and what is put in its place."""
    for flight in flights:
        draw = crc32(f"{flight.at:%m%d%H%M} {flight.origin} {flight.destination}".encode())
        if draw % CANCELLED == 0:
            yield flight, -1
        elif draw % AMENDED == 1:
            yield flight, -1
            yield flight._replace(delay=flight.delay + draw // AMENDED % 61 - 30), 1


def arrivals(flights: Iterable[Flight], *, days: int | None = None) -> Iterator[tuple[str, list[Weighted]]]:
    """File name and contents, in order of arrival; of the first `days` days, or of all."""
    by_day = groupby(flights, key=lambda flight: flight.at.date())
    chosen = islice(by_day, days)
    while week := [(day, list(group)) for day, group in islice(chosen, 7)]:
        for day, departed in week:
            yield f"{day}-flights.json", [(flight, 1) for flight in departed]
        last_day, _ = week[-1]
        yield f"{last_day}-revised.json", [r for _, departed in week for r in revisions(departed)]


def write(folder: Path, files: Iterable[tuple[str, list[Weighted]]]) -> None:
    """Write files of weighted flights as JSON lines; each takes its name when it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files:
        unfinished = folder / f".{name}"
        with unfinished.open("w", encoding="utf-8") as file:
            for flight, weight in rows:
                record = {**flight._asdict(), "at": flight.at.isoformat(), "weight": weight}
                file.write(json.dumps(record) + "\n")
        unfinished.rename(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut the flights of 2001 into files, a day each.")
    parser.add_argument("--data", type=Path, required=True, help="folder with flights-20k.json")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--days", type=int, help="only the first so many")
    given = parser.parse_args()
    files = list(arrivals(read_flights(given.data), days=given.days))
    write(given.to, files)
    print(f"{len(files)} files in {given.to}")


if __name__ == "__main__":
    main()
