"""`headrace package`: build the files that run a flow on a cluster, and print the `spark-submit` command."""

from __future__ import annotations

import pprint
import shlex
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import FlowName, SinkUris, SourceUris
from headrace.errors import BadInput

_MADE = "Made by `headrace package`"
_MAIN = '''\
"""Runs {flow!r} on Spark. Made by `headrace package`; edit freely."""

import sys

from headrace.cli.submitted_flow import add_packed_environment, run_submitted

environment = add_packed_environment(__file__)
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


class ClusterManager(Enum):
    YARN = "yarn"
    KUBERNETES = "kubernetes"
    STANDALONE = "standalone"


_MASTERS = {
    ClusterManager.YARN: ("--master yarn --deploy-mode cluster",),
    ClusterManager.KUBERNETES: (
        "--master k8s://https://HOST:6443 --deploy-mode cluster",
        "--conf spark.kubernetes.container.image=IMAGE",
        "--conf spark.kubernetes.file.upload.path=s3a://BUCKET/FOLDER",
    ),
    ClusterManager.STANDALONE: ("--master spark://HOST:7077",),
}


def package(
    flow: FlowName,
    out: Annotated[str, typer.Option(help="Folder for the output.")] = "package",
    source: SourceUris = None,
    sink: SinkUris = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder on a file system that all hosts mount.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Run forever, or until all input is read.")
    ] = False,
    end: Annotated[
        bool | None, typer.Option("--end/--keep-open", help="As for `headrace run`.", show_default=False)
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, help="Number of shards of the state.")] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="Installed package that the flow needs; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="PACKAGE",
            help="Package that the cluster already has, such as pyarrow; repeatable.",
        ),
    ] = None,
    cluster: Annotated[
        ClusterManager | None,
        typer.Option(help="Print the command for this kind of cluster only.", show_default=False),
    ] = None,
) -> None:
    """Build main.py, code.zip and env.tar.gz, and print the `spark-submit` command.

    code.zip holds the flow's modules and Headrace; env.tar.gz holds packages with compiled code. The cluster
    needs Spark, and Python of the same minor version on the same platform.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.cli.options import parse_named_uris
    from headrace.cli.spark_archives import NEEDED, pack_code, pack_environment, python_version
    from headrace.engine.endpoints import check_names
    from headrace.file_system import local_path, make_private_file
    from headrace.io import parse_sink, parse_source
    from headrace.io.postgres import without_password

    loaded = load_flow(flow)
    sources, sinks = parse_named_uris("source", source or ()), parse_named_uris("sink", sink or ())
    ends = {name: parse_source(uri) for name, uri in sources.items()}
    check_names(loaded.graph(), ends, {name: parse_sink(uri) for name, uri in sinks.items()}, command=True)
    if not sinks:
        raise BadInput(
            "a submitted flow needs a sink, because the driver's output is not shown",
            fix="--sink NAME=changelog:PATH, or --sink NAME=table:PATH?key=COLUMN",
        )
    if follow and checkpoint is None:
        raise BadInput("a run with --follow needs a checkpoint", fix="add --checkpoint PATH")
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
            flow=name_in_archive(flow),
            sources=_literal(sources),
            sinks=_literal(sinks),
            checkpoint=checkpoint,
            follow=follow,
            end=end,
            shards=shards,
        )
    )
    typer.echo(f"{folder / 'main.py'}     runs {loaded.graph().name!r}")
    typer.echo(f"{folder / 'code.zip'}    headrace, {', '.join(modules)}")
    typer.echo(f"{folder / 'env.tar.gz'}  {', '.join(shipped)}; for Python {python_version()}")
    for line in _lines(folder, cluster, python_version()):
        typer.echo(line)
    for said in path_warnings([*sources.items(), *sinks.items()], checkpoint):
        typer.echo(said, err=True)


def refuse_to_overwrite(out: Path) -> None:
    """Raise `BadInput` if the output folder holds files of the same names not made by `headrace package`."""
    main, environment = out / "main.py", out / "env"
    ours = not main.exists() or _MADE in main.read_text(errors="replace")
    for path, is_free in ((main, ours), (environment, (out / "env.tar.gz").exists())):
        if path.exists() and not is_free:
            raise BadInput(
                f"{path} already exists and was not made by `headrace package`",
                why="A package consists of main.py, code.zip, env.tar.gz and the folder env.",
                fix="choose another folder: --out FOLDER",
                path=str(path),
            )


def name_in_archive(flow: str) -> str:
    """Return the name by which a flow is loaded once its modules are packed in a zip.

    >>> [name_in_archive(name) for name in ("flows/sales.py:totals", "sales.flows:totals", "sales.py")]
    ['sales:totals', 'sales.flows:totals', 'sales']
    """
    from headrace.cli.load_flow import module_name, split_name

    where, attribute = split_name(flow)
    module = module_name(Path(where).resolve()) if where.endswith(".py") else where
    return f"{module}:{attribute}" if attribute else module


def _literal(named: Mapping[str, str]) -> str:
    return pprint.pformat(dict(named), sort_dicts=False).replace("\n", "\n        ")


def _lines(out: Path, cluster: ClusterManager | None, python: str) -> Iterator[str]:
    for kind in ClusterManager if cluster is None else (cluster,):
        yield f"\nOn {kind.value}:\n"
        parts = (
            *_MASTERS[kind],
            f"--conf spark.pyspark.python=python{python}",
            f"--py-files {shlex.quote(str(out / 'code.zip'))}",
            f"--archives {shlex.quote(str(out / 'env.tar.gz'))}#env",
            shlex.quote(str(out / "main.py")),
        )
        yield "  spark-submit " + " \\\n    ".join(parts)


_NO_FOLDERS = ("kafka", "postgres", "postgresql", "print")


def path_warnings(named: Iterable[tuple[str, str]], checkpoint: str | None) -> Iterator[str]:
    """Yield warnings about paths that differ per host and passwords stored in readable files."""
    from headrace.file_system import scheme_of
    from headrace.io.postgres import without_password
    from headrace.io.uri import Uri

    paths: list[tuple[str, str]] = []
    for name, text in named:
        uri = Uri.of("print:" if text == "-" else text)
        if uri.scheme.rpartition("+")[2] not in _NO_FOLDERS:
            paths.append((name, uri.path))
        if without_password(text) != text:
            yield f"{name}: main.py contains its password; remove it and set PGPASSWORD instead"
    for name, path in (*paths, ("checkpoint", checkpoint or "")):
        if path and not path.startswith("/") and not scheme_of(path):
            yield f"{name}: {path} is relative, so each host would use a different folder"
