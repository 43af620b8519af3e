"""Nexmark events as files that arrive in folders, one folder for each source.

python -m examples.nexmark.files --events 100000 --chunk 5000 --to /tmp/nexmark
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from examples.nexmark.events import SOURCES
from examples.nexmark.generator import Generator, Parameters

Format = Literal["json", "parquet"]


def write_chunks(
    folder: Path, events: int, *, chunk: int, format: Format = "json", parameters: Parameters = Parameters()
) -> None:
    """Write the first `events` events under `folder`, one file per source for each `chunk` events.

    A file takes its final name when it is whole: who watches the folder never reads half of one.
    """
    write = _FORMATS[format]
    for source in SOURCES:
        (folder / source).mkdir(parents=True, exist_ok=True)
    for number, tick in enumerate(Generator(parameters).ticks(events, chunk)):
        for source, rows in tick.items():
            if rows:
                path = folder / source / f"{number:06d}.{format}"
                unfinished = path.with_name(f".{path.name}")
                write(unfinished, [row._asdict() for row in rows])
                unfinished.rename(path)


def _write_json(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, default=datetime.isoformat) + "\n")


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)


_FORMATS: dict[Format, Callable[[Path, Sequence[Mapping[str, Any]]], None]] = {
    "json": _write_json,
    "parquet": _write_parquet,
}


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
