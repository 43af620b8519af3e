"""`penstock package`: what `spark-submit` needs to run a flow on a cluster, and the line to type."""

from __future__ import annotations

import pprint
import shlex
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import BadInput

_MADE = "Made by `penstock package`"
_MAIN = '''\
"""Runs {flow!r} on Spark. Made by `penstock package`; change what stands here as you like."""

import sys

from penstock.cli.spark_submit import environment_of, run_submitted

environment = environment_of(__file__)
sys.exit(
    run_submitted(
        {flow!r},
        sources={sources},
        sinks={sinks},
        checkpoint={checkpoint!r},
        follow={follow!r},
        end={end!r},
        shards={shards!r},
        environment=environment,
    )
)
'''


class Cluster(Enum):
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    STANDALONE = "standalone"


_MASTERS = {
    Cluster.YARN: ("--master yarn --deploy-mode cluster",),
    Cluster.KUBERNETES: (
        "--master k8s://https://HOST:6443 --deploy-mode cluster",
        "--conf spark.kubernetes.container.image=IMAGE",
        "--conf spark.kubernetes.file.upload.path=s3a://BUCKET/FOLDER",
    ),
    Cluster.STANDALONE: ("--master spark://HOST:7077",),
}


def package(
    flow: Annotated[str, typer.Argument(help="module:flow or path/to/file.py:flow")],
    out: Annotated[str, typer.Option(help="A folder for what is made.")] = "package",
    source: Annotated[
        list[str] | None, typer.Option(metavar="NAME=URI", help="As for `penstock run`.")
    ] = None,
    sink: Annotated[list[str] | None, typer.Option(metavar="NAME=URI", help="As for `penstock run`.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder on a file system that all hosts mount.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Run for ever, or until all is read.")
    ] = False,
    end: Annotated[
        bool | None, typer.Option("--end/--keep-open", help="As for `penstock run`.", show_default=False)
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Parts of the state.")] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="An installed package that the flow needs; several."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="PACKAGE", help="One that the cluster has already (pyarrow, say)."),
    ] = None,
    cluster: Annotated[
        Cluster | None, typer.Option(help="Say the line for this kind of cluster only.", show_default=False)
    ] = None,
) -> None:
    """Make main.py, code.zip and env.tar.gz, and say the line that submits them.

    code.zip has the flow's modules and Penstock; env.tar.gz has packages with compiled code. The
    cluster needs Spark, and a Python of the same minor version on the same kind of machine.
    """
    from penstock.cli.load import load_flow
    from penstock.cli.packing import NEEDED, pack_code, pack_environment, python_version
    from penstock.cli.run import named
    from penstock.engine.endpoints import check_names
    from penstock.io import parse_sink, parse_source
    from penstock.io.postgres.server import without_password
    from penstock.paths import local_path
    from penstock.private_files import make_private_file

    loaded = load_flow(flow)
    sources, sinks = named("source", source or ()), named("sink", sink or ())
    ends = {name: parse_source(uri) for name, uri in sources.items()}
    check_names(loaded.graph(), ends, {name: parse_sink(uri) for name, uri in sinks.items()})
    if not sinks:
        raise BadInput(
            "a flow that is submitted needs a sink: nobody sees what a driver prints",
            fix="--sink NAME=changelog:PATH, or --sink NAME=table:PATH?key=COLUMN",
        )
    if follow and checkpoint is None:
        raise BadInput("a run that follows needs a checkpoint to go on from", fix="add --checkpoint PATH")
    if checkpoint is not None:
        checkpoint = local_path(checkpoint, "--checkpoint")
    folder = Path(local_path(out, "--out"))
    refuse_to_overwrite(folder)
    folder.mkdir(parents=True, exist_ok=True)
    modules = pack_code(folder / "code.zip")
    without = {name.lower() for name in exclude or ()}
    packages = [name for name in (*NEEDED, *(include or ())) if name.lower() not in without]
    shipped = pack_environment(folder / "env", folder / "env.tar.gz", packages)
    if any(without_password(uri) != uri for uri in (*sources.values(), *sinks.values())):
        (folder / "main.py").unlink(missing_ok=True)
        make_private_file(folder / "main.py")
    (folder / "main.py").write_text(
        _MAIN.format(
            flow=shipped_name(flow),
            sources=_literal(sources),
            sinks=_literal(sinks),
            checkpoint=checkpoint,
            follow=follow,
            end=end,
            shards=shards,
        )
    )
    typer.echo(f"{folder / 'main.py'}     runs {loaded.graph().name!r}")
    typer.echo(f"{folder / 'code.zip'}    penstock, {', '.join(modules)}")
    typer.echo(f"{folder / 'env.tar.gz'}  {', '.join(shipped)}; for Python {python_version()}")
    for line in _lines(folder, cluster, python_version()):
        typer.echo(line)
    for said in told_of_ends([*sources.items(), *sinks.items()], checkpoint):
        typer.echo(said, err=True)


def refuse_to_overwrite(out: Path) -> None:
    """Raises `BadInput` where files would be replaced that no package before has made."""
    main, environment = out / "main.py", out / "env"
    ours = not main.exists() or _MADE in main.read_text(errors="replace")
    for path, is_free in ((main, ours), (environment, (out / "env.tar.gz").exists())):
        if path.exists() and not is_free:
            raise BadInput(
                f"{path} is there already, and is of something else",
                why="a package is made of main.py, code.zip, env.tar.gz and the folder env.",
                fix="give a folder of its own: --out FOLDER",
                path=str(path),
            )


def shipped_name(flow: str) -> str:
    """The name of a flow where its modules are imported from a zip.

    >>> shipped_name("flows/sales.py:totals"), shipped_name("sales.flows:totals"), shipped_name("sales.py")
    ('sales:totals', 'sales.flows:totals', 'sales')
    """
    where, colon, attribute = flow.partition(":")
    return f"{Path(where).stem if where.endswith('.py') else where}{colon}{attribute}"


def _literal(named: Mapping[str, str]) -> str:
    return pprint.pformat(dict(named), sort_dicts=False).replace("\n", "\n        ")


def _lines(out: Path, cluster: Cluster | None, python: str) -> Iterator[str]:
    for kind in Cluster if cluster is None else (cluster,):
        yield f"\nOn {kind.value}:\n"
        pieces = (
            *_MASTERS[kind],
            f"--conf spark.pyspark.python=python{python}",
            f"--py-files {shlex.quote(str(out / 'code.zip'))}",
            f"--archives {shlex.quote(str(out / 'env.tar.gz'))}#env",
            shlex.quote(str(out / "main.py")),
        )
        yield "  spark-submit " + " \\\n    ".join(pieces)


_NO_FOLDERS = ("kafka", "postgres", "postgresql", "print")


def told_of_ends(named: Iterable[tuple[str, str]], checkpoint: str | None) -> Iterator[str]:
    """A word on paths that mean another folder on each host, and on passwords that can be read."""
    from penstock.io.postgres.server import without_password
    from penstock.io.uri import Uri
    from penstock.paths import scheme_of

    paths: list[tuple[str, str]] = []
    for name, text in named:
        uri = Uri.of("print:" if text == "-" else text)
        if uri.scheme.rpartition("+")[2] not in _NO_FOLDERS:
            paths.append((name, uri.path))
        if without_password(text) != text:
            yield f"{name}: its password stands in main.py; better leave it out, and set PGPASSWORD"
    for name, path in (*paths, ("checkpoint", checkpoint or "")):
        if path and not path.startswith("/") and not scheme_of(path):
            yield f"{name}: {path} is relative: each host would take a folder of its own"
