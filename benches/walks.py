"""The files that one thing passes: a flow as it is built and compiled, a row in a tick, a run, a peek.

    python benches/walks.py [--functions] [build] [compile] [tick] [spark] [pipeline] [view]

Runs each walk with a profile function in every Python process and prints, per process, the files
of `headrace` whose functions ran, in the order of their first call, and in which of them half of these
functions or more only hand on what they were given. Another went the same way before, so that starts
and imports do not show. Housekeeping of a process that is due meanwhile does show.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = str(ROOT / "src" / "headrace") + os.sep
ROLES = {"worker_daemon": "task", "pyspark.daemon": "task", "controller": "controller", "replica": "replica"}
HERE = {"spark": "driver", "pipeline": "driver", "view": "client"}


class Sale(NamedTuple):
    shop: int
    amount: int


class Shop(NamedTuple):
    id: int
    city: str


def record(folder: Path) -> None:
    """Write each function of `headrace` to `folder` at its first call while the file `on` is there."""
    role = next((role for word, role in ROLES.items() if word in sys.orig_argv), "here")
    seen: set[CodeType] = set()
    mark = folder / "on"

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(PACKAGE) or not mark.exists():
            return
        seen.add(code)
        call = [time.time_ns(), role, code.co_filename, code.co_firstlineno, code.co_qualname]
        with (folder / f"{os.getpid()}.calls").open("a") as calls:
            calls.write(json.dumps(call) + "\n")

    threading.setprofile(on_event)
    sys.setprofile(on_event)


def flow(name: str = "amounts per city") -> Any:
    import headrace as hr
    from headrace import col

    flow = hr.Flow(name)
    sales = flow.source("sales", Sale).filter(col.amount > 0)
    joined = sales.join(flow.source("shops", Shop), on=col.shop == col.id)
    flow.sink("totals", joined.group_by(col.city).agg(total=hr.sum(col.amount)))
    return flow


def build(folder: Path, mark: Path) -> None:
    """The calls that build a flow of a filter, a join and an aggregate."""
    flow()
    mark.touch()
    flow("amounts")


def compile_(folder: Path, mark: Path) -> None:
    """From that flow to an engine that is ready for its first tick."""
    import headrace as hr

    hr.Engine(flow())
    other = flow("amounts")
    mark.touch()
    hr.Engine(other)


def tick(folder: Path, mark: Path) -> None:
    """One row into a tick of a filter, a join and an aggregate, to its changes."""
    import headrace as hr

    engine = hr.Engine(flow())
    engine.tick(sales=[Sale(1, 5)], shops=[Shop(1, "Rome")])
    mark.touch()
    assert len(engine.tick(sales=[Sale(1, 7)])["totals"]) == 2


def spark(folder: Path, mark: Path) -> None:
    """One row in a file that arrives, through one tick, to the file of a sink."""
    import headrace as hr
    from headrace import io

    for name in ("sales", "shops"):
        (folder / name).mkdir()
    (folder / "shops" / "1.jsonl").write_text('{"id": 1, "city": "Rome"}\n')
    for number in (1, 2):
        (folder / "sales" / f"{number}.jsonl").write_text('{"shop": 1, "amount": 5}\n')
    arriving = folder / "3.jsonl"
    arriving.write_text('{"shop": 1, "amount": 7}\n')

    def on_tick(progress: Any) -> None:
        if progress.tick == 2:
            mark.touch()
            arriving.rename(folder / "sales" / arriving.name)
        elif progress.tick == 3:
            mark.unlink()
            os.kill(os.getpid(), signal.SIGINT)

    session = hr.spark.session()
    hr.spark.run(
        flow(),
        session,
        sources={name: io.JsonFiles(folder / name, files_per_tick=1) for name in ("sales", "shops")},
        sinks={"totals": io.Changelog(folder / "totals")},
        checkpoint=folder / "checkpoint",
        on_tick=on_tick,
        follow=True,
    )
    session.stop()


def pipeline(folder: Path, mark: Path) -> None:
    """One more file into a project of `spark-pipelines`, to its one table of sums."""
    import headrace as hr
    from headrace.pipelines.pipeline_run import run_pipeline
    from headrace.pipelines.spec import read_spec

    for name in ("sales", "transformations"):
        (folder / name).mkdir()
    (folder / "spark-pipeline.yml").write_text(
        "name: shop\nstorage: storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    (folder / "transformations" / "totals.py").write_text(
        "from pyspark import pipelines as dp\n"
        "from pyspark.sql import SparkSession\n\n"
        "spark = SparkSession.active()\n\n\n"
        "@dp.materialized_view\n"
        "def totals():\n"
        "    sales = spark.read.schema('shop INT, amount INT').json('sales')\n"
        "    return sales.filter('amount > 0').groupBy('shop').sum('amount')\n"
    )
    session = hr.spark.session()
    for number in range(3):
        if number == 2:
            mark.touch()
        (folder / "sales" / f"{number}.jsonl").write_text('{"shop": 1, "amount": 7}\n')
        report = run_pipeline(read_spec(folder / "spark-pipeline.yml"), session)
        assert not report.failed
    mark.unlink()
    session.stop()


def view(folder: Path, mark: Path) -> None:
    """One row inserted by a client, through controller and replica, to the answer of a peek."""
    from benches.serving.cluster import Cluster
    from headrace.compute import Client

    cluster = Cluster(folder)
    try:
        replica, controller = cluster.replica("a"), cluster.controller()
        with Client(controller) as client:
            client.add_replica("a", replica)
            client.create_view("totals", flow(), key="city")
            client.insert("shops", [Shop(1, "Rome")])
            client.insert("sales", [Sale(1, 5)])
            client.peek("totals", key="Rome")
            mark.touch()
            client.insert("sales", [Sale(1, 7)])
            assert client.peek("totals", key="Rome")[0].total == 12
            mark.unlink()
    finally:
        cluster.end()


def note(file: str, lines: set[int]) -> str:
    """How many of the functions that begin at these lines hand on, where that is half of them or more."""
    bodies: dict[int, list[ast.stmt]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            bodies[first] = node.body[1:] if ast.get_docstring(node) else node.body
    called = [bodies[line] for line in lines if line in bodies]
    count = sum(map(hands_on, called))
    return f"   {count} of {len(called)} hand on" if count * 2 >= len(called) > 0 else ""


def hands_on(body: list[ast.stmt]) -> bool:
    """Whether a function does no more than to return something it has, or to call with what it has."""
    match [statement for statement in body if not isinstance(statement, ast.Assert)]:
        case [] | [ast.Pass()] | [ast.Return(value=None)]:
            return True
        case [ast.Return(value=found) | ast.Expr(value=found)] if found is not None:
            value = found.value if isinstance(found, ast.Await | ast.YieldFrom) else found
            if not isinstance(value, ast.Call):
                return _is_at_hand(value)
            return all(map(_is_at_hand, (*value.args, *(keyword.value for keyword in value.keywords))))
        case _:
            return False


def _is_at_hand(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Name | ast.Attribute | ast.Constant)


def walk(run: Callable[[Path, Path], None], functions: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(
            f"import pathlib, benches.walks as walks\nwalks.record(pathlib.Path({name!r}))\n"
        )
        # The workers of Spark import from where this process does.
        sys.path[:0] = paths = [name, str(ROOT), str(ROOT / "src")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        record(folder)
        run(folder, folder / "on")
        sys.setprofile(None)
        threading.setprofile(None)
        found = [
            json.loads(line) for calls in folder.glob("*.calls") for line in calls.read_text().splitlines()
        ]
    files: dict[tuple[str, str], dict[int, str]] = {}
    for _, role, file, line, function in sorted(found):
        files.setdefault((role, file), {})[line] = function
    name = run.__name__.rstrip("_")
    print(f"\n{name}: {run.__doc__} {len({file for _, file in files})} files.")
    for role in dict.fromkeys(role for role, _ in files):
        inside = {file: called for (where, file), called in files.items() if where == role}
        print(f"  {HERE.get(name, 'this process') if role == 'here' else role}, {len(inside)} files:")
        for file, called in inside.items():
            print(f"    {file.removeprefix(PACKAGE)}{note(file, set(called))}")
            if functions:
                print(*(f"        {function}" for function in called.values()), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    walks = {run.__name__.rstrip("_"): run for run in (build, compile_, tick, spark, pipeline, view)}
    parser.add_argument("--functions", action="store_true", help="name the functions, too")
    parser.add_argument("walks", nargs="*", default=list(walks), help=", ".join(walks))
    given = parser.parse_args()
    for name in given.walks:
        walk(walks[name], given.functions)


if __name__ == "__main__":
    main()
