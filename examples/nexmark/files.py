"""Nexmark events as files that arrive in folders, one folder for each source.

python -m examples.nexmark.files --events 100000 --chunk 5000 --to /tmp/nexmark
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

from examples.nexmark.events import SOURCES, Kind
from examples.nexmark.generator import Generator, Parameters

Format = Literal["json", "parquet"]


def write_chunks(
    folder: Path, events: int, *, chunk: int, format: Format = "json", parameters: Parameters = Parameters()
) -> None:
    """Write the first `events` events under `folder`, one file per source for each `chunk` events.

    A file takes its final name when it is whole: who watches the folder never reads half of one.
    """
    generator, write = Generator(parameters), _FORMATS[format]
    for kind in SOURCES:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, events, chunk)):
        for kind in SOURCES:
            path = folder / kind / f"{number:06d}.{format}"
            unfinished = path.with_name(f".{path.name}")
            if write(unfinished, generator, kind, start, min(start + chunk, events)):
                unfinished.rename(path)


def _write_json(path: Path, generator: Generator, kind: Kind, start: int, stop: int) -> bool:
    rows = generator.rows(kind, start, stop)
    if rows:
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row._asdict(), default=datetime.isoformat) + "\n")
    return bool(rows)


def _write_parquet(path: Path, generator: Generator, kind: Kind, start: int, stop: int) -> bool:
    import pyarrow.parquet as pq

    table = generator.table(kind, start, stop)
    if table.num_rows:
        pq.write_table(table, path)
    return bool(table.num_rows)


_FORMATS: dict[Format, Callable[[Path, Generator, Kind, int, int], bool]] = {
    "json": _write_json,
    "parquet": _write_parquet,
}
"""Each writes a file of the events of a kind from one number to another, and none where there are none."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write Nexmark events as files, a folder for each source.")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=5_000, help="events per file (all sources together)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=list(_FORMATS), default="json")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    parameters = Parameters(seed=given.seed)
    write_chunks(given.to, given.events, chunk=given.chunk, format=given.format, parameters=parameters)
    print(f"{given.events:,} events in {given.to}: {', '.join(SOURCES)}")


if __name__ == "__main__":
    main()
