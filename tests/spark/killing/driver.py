"""A driver that is to be killed. `python -m tests.spark.killing.driver FOLDER OPTIONS`, OPTIONS as JSON.

It says on its output what it does, a line at a time: `jvm PID`, `tick N`, `done`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headrace.spark
from headrace import io
from tests.spark.killing import shop

_OPERATIONS = {"open", "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir"}


def die_at(folder: Path, operation: int) -> None:
    """Let this process die just before the n-th thing it does to a file of a tick."""
    count = itertools.count(1)
    below = str(folder)

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        touches = event in _OPERATIONS and any(str(a).startswith(below) for a in arguments[:2])
        if touches and next(count) == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def stop_before_commit(tick: int) -> None:
    """Let this process be stopped when the commit of a tick is written and does not count yet."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.link" and Path(arguments[1]).name == f"{tick:012d}.json":
            # To this thread, so that it is the first that stops: just here.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    sys.addaudithook(look)


def tell(folder: Path, tick: int, changes: Sequence[Any]) -> None:
    """A sink of ours: a file per tick. A tick that comes again must come the same."""
    target = folder / f"{tick:06d}.json"
    text = json.dumps(sorted([[*change.row], change.weight] for change in changes))
    if target.exists():
        assert target.read_text() == text, f"tick {tick} came again, and was another"
        return
    aside = target.with_suffix(".tmp")
    aside.write_text(text)
    aside.rename(target)


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = headrace.spark.session(master=options.get("master", "local[2]"))
    gateway: Any = spark.sparkContext._gateway
    print("jvm", gateway.proc.pid, flush=True)
    (folder / "told").mkdir(exist_ok=True)
    if "operation" in options:
        die_at(folder, options["operation"])
    if "stopped_in" in options:
        stop_before_commit(options["stopped_in"])
    headrace.spark.run(
        shop.flow(),
        spark,
        shards=2,
        checkpoint=folder / "checkpoint",
        way=options.get("way", "auto"),
        follow=options.get("follow", False),
        sources={name: io.JsonFiles(folder / name, files_per_tick=1) for name in shop.SOURCES},
        sinks={
            "best": io.DeltaTable(str(folder / "best"), key=("customer", "region")),
            "regions": io.TableFiles(folder / "regions", key="region", buckets=2),
            "large": io.Changelog(folder / "large"),
            "reached": io.Call(lambda tick, changes: tell(folder / "told", tick, changes)),
        },
        on_tick=lambda progress: print("tick", progress.tick, flush=True),
    )
    print("done", flush=True)


if __name__ == "__main__":
    main()
