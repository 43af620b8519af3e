"""`headrace state`, `reshard`, `rewind`, `skip` and `compact`: inspection and maintenance of checkpoints.

`headrace state compact --erase` writes places that hold rows anew: checkpoints, sinks that are folders, and
stores of collections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli.options import FlowName
from headrace.cli.row_formats import create_console, create_table
from headrace.errors import BadInput
from headrace.file_system import local_path

if TYPE_CHECKING:
    from headrace.state.inspection import CheckpointStats, FoundValue


Folder = Annotated[str, typer.Argument(help="The folder of a checkpoint.")]


class _ShowsByDefault(TyperGroup):
    """Group in which `headrace state FOLDER` is short for `headrace state show FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if known or not args else ["show", *args])


state = typer.Typer(
    name="state",
    cls=_ShowsByDefault,
    no_args_is_help=True,
    help="Show a checkpoint (headrace state FOLDER), or erase what it no longer holds.",
)


@state.command(name="compact")
def erase_folder(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="Folder of a checkpoint, changelog or table sink; or a store of collections.",
        ),
    ],
    erase: Annotated[
        bool, typer.Option("--erase", help="Give up earlier ticks, and everything that was taken back.")
    ] = False,
) -> None:
    """Write state or output anew, so that no file holds values that no current row has.

    Flows that use it must not be running; a store of collections may be in use.
    """

    if not erase:
        raise BadInput(
            "headrace state compact needs --erase",
            why="Runs merge files by themselves. This gives up the ticks that a rewind would go back to.",
            fix=f"headrace state compact --erase {place}",
        )
    for line in erase_place(place):
        typer.echo(line)


@state.command()
def show(
    folder: Folder,
    operator: Annotated[
        str | None, typer.Option("--operator", "-o", help="Show only this operator, shard by shard.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="Show the state of a key (JSON): '\"a\"', 7, '[\"a\", 7]'."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the contents of a checkpoint: operators, shards, keys, bytes, ticks and positions.

    The checkpoint is not modified. Exit code 1 if one of its files is damaged.
    """
    from headrace.state.inspection import inspect, rows_of_key

    if key is not None:
        if operator is None:
            raise BadInput("--key needs --operator", fix="add --operator NAME")
        _print_rows(rows_of_key(folder, operator, _parsed(key)), as_json)
        return
    held = inspect(folder)
    if operator is not None:
        held = _only(held, operator)
    if as_json:
        typer.echo(json.dumps(_as_json(held), indent=2))
    else:
        _print_checkpoint(held, by_shard=operator is not None)
    if held.damage:
        raise typer.Exit(1)


def _parsed(key: str) -> Any:
    try:
        return json.loads(key)
    except ValueError as error:
        raise BadInput(
            f"the key {key!r} is not JSON",
            why=str(error),
            fix="write text in quotes, '\"a\"', and several columns as a list, '[\"a\", 7]'",
        ) from error


def _only(held: CheckpointStats, operator: str) -> CheckpointStats:
    from dataclasses import replace

    slots = tuple(s for s in held.slots if operator in (s.name, s.operator, s.called))
    if not slots:
        known = sorted({repr(s.called or s.name) for s in held.slots})
        raise BadInput(
            f"no operator {operator!r} has state in the checkpoint {held.folder}",
            fix=f"one of {', '.join(known)}" if known else "the checkpoint holds no state",
            operator=operator,
        )
    return replace(held, slots=slots)


def _as_json(held: CheckpointStats) -> dict[str, Any]:
    body = asdict(held)
    body["folder"] = str(held.folder)
    for slot, whole in zip(body["slots"], held.slots, strict=True):
        slot |= {"keys": whole.whole.keys, "bytes": whole.whole.bytes}
    return body


def _print_rows(found: list[FoundValue], as_json: bool) -> None:
    from headrace.state.inspection import plain

    if as_json:
        rows = [
            {
                "operator": f.operator,
                "slot": f.what,
                "shard": f.shard,
                "key": plain(f.key),
                "value": plain(f.value),
            }
            for f in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = create_table("operator", "slot", ">shard", "value")
    for f in found:
        for number, line in enumerate(_lines(f.value)):
            first = (f.operator or "", f.what, str(f.shard)) if not number else ("", "", "")
            table.add_row(*first, line)
    create_console().print(table if found else "no state for this key")


def _lines(value: Any) -> list[str]:
    """Format a value, one line per row if it holds rows."""
    from headrace.state.inspection import plain

    if isinstance(value, dict):
        return [f"{_short(plain(k))}: {_short(plain(v))}" for k, v in value.items()] or ["nothing"]
    if isinstance(value, tuple | list) and value and all(isinstance(v, tuple | list) for v in value):
        return [_short(plain(v)) for v in value]
    return [_short(plain(value))]


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _print_checkpoint(held: CheckpointStats, *, by_shard: bool) -> None:
    from rich.text import Text

    out = create_console()
    out.print(f"checkpoint {held.folder}, of a run on {held.on}", highlight=False, soft_wrap=True)
    shards = f"{held.shards} shard{'s' * (held.shards != 1)}"
    ticks = f"tick {held.tick}" + (f" (back to {held.oldest})" if held.oldest < held.tick else "")
    out.print(f"{ticks}, {shards}, {held.files} files, {_size(held.bytes)}", highlight=False, soft_wrap=True)
    for name, position in held.positions.items():
        out.print(f"read of {name}: {_position(position)}", highlight=False, soft_wrap=True)
    for file in held.skipped:
        out.print(f"skipped: {file}", highlight=False, soft_wrap=True, markup=False)
    for name, mark in held.watermarks.items():
        out.print(f"watermark of {name}: {mark}", highlight=False, soft_wrap=True)
    for damage in held.damage:
        out.print(Text.assemble(("damaged", "red"), f": {damage}"), soft_wrap=True)
    if held.damage:
        return
    table = create_table(
        "name", "operator", "at", "slot", ">shard" if by_shard else ">shards", ">keys", ">bytes"
    )
    for slot in held.slots:
        first = (slot.called or slot.name, slot.operator or "removed", slot.place or "", slot.what)
        if by_shard:
            for shard, part in sorted(slot.shards.items()):
                table.add_row(*first, str(shard), f"{part.keys:,}", f"{part.bytes:,}")
        else:
            table.add_row(*first, str(len(slot.shards)), f"{slot.whole.keys:,}", f"{slot.whole.bytes:,}")
    out.print(table if held.slots else "it holds no state")


def _position(position: Any) -> str:
    if not isinstance(position, dict):
        return str(position)
    if len(position) > 3:
        return f"{len(position):,} parts, the last is {max(position)}"
    from headrace.io.source import DONE

    return ", ".join(f"{name} {'read' if value == DONE else value}" for name, value in position.items())


def _size(number: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 10_000:
            return f"{number:,} {unit}"
        number //= 1000
    return f"{number:,} GB"


def reshard(
    folder: Annotated[str, typer.Argument(help="Folder of a Spark checkpoint.")],
    shards: Annotated[int, typer.Argument(min=1, help="New number of shards.")],
    flow: FlowName,
) -> None:
    """Redistribute the state of a checkpoint over another number of shards.

    The flow must not be running. If interrupted, the state is unchanged.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.spark.resharding import reshard as divide

    done = divide(folder, shards, load_flow(flow))
    typer.echo(
        f"tick {done.tick}: {done.keys:,} keys of state on {done.shards} shards, were on {done.shards_before}"
    )


def rewind(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    tick: Annotated[
        int, typer.Argument(help="Tick to return to; `headrace state` shows the available ones.")
    ],
) -> None:
    """Discard all ticks after the given one, so that the next run reads their input again.

    The flow must not be running. Sinks keep their output; empty those that hold later ticks, or leave them
    out.
    """
    from headrace.state.rewind import rewind as go_back

    done = go_back(folder, tick)
    if done.forgotten:
        typer.echo(f"back at tick {done.tick}, {done.forgotten} forgotten")
    else:
        typer.echo(f"the last tick is {done.tick} already: nothing to forget")
    if done.forgotten and done.sinks:
        typer.echo(f"these sinks may hold later ticks: {', '.join(done.sinks)}")
    if done.gone:
        typer.echo(
            f"these files were read and no longer exist, so they cannot be read again: {', '.join(done.gone)}"
        )


def skip(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint.")],
    file: Annotated[
        str | None, typer.Argument(help="File of a source. Default: list the skipped files.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Stop skipping the file.")] = False,
) -> None:
    """Skip an unreadable file in later runs.

    The flow must not be running. Rows that committed ticks have read from the file remain. A file that was
    corrected or removed need not be skipped.
    """
    from headrace.state.rewind import checkpoint_folder, skip_file, skipped_files, unskip_file

    if file is None:
        files = sorted(skipped_files(checkpoint_folder(folder)))
        typer.echo("\n".join(files) if files else "no file is skipped")
    elif undo:
        typer.echo(f"{unskip_file(folder, file)}: read again from the next run")
    else:
        typer.echo(f"{skip_file(folder, file)}: skipped from the next run")


def compact(
    folder: Annotated[str, typer.Argument(help="Folder of a changelog.")],
    keep: Annotated[
        int, typer.Option("--keep", min=1, help="Number of the latest ticks that stay as they are.")
    ] = 100,
) -> None:
    """Merge the folders of a changelog's old ticks into a few, with the rows that they add up to.

    The flow that writes it must not be running; readers may go on. Ticks of the last minute stay as they are.
    If interrupted, the changelog is unchanged.
    """
    from headrace.io.files.compaction import compact as merge

    done = merge(folder, keep)
    if done.merged:
        typer.echo(f"{done.merged:,} folders merged into {done.into:,}, {len(done.unmerged):,} ticks kept")
    else:
        typer.echo(f"nothing to merge, {len(done.unmerged):,} ticks kept")


_STORE = re.compile("(sqlite|postgresql|delta|memory):")
_SQLITE = b"SQLite format 3"


def erase_place(place: str) -> Iterator[str]:
    """Erase deleted rows from a folder or store, and yield a report. Raises `BadInput` for other places."""
    folder = Path(place)
    if _STORE.match(place) or _is_sqlite(folder):
        yield from _erase_collections(place)
    elif (folder / "commit").is_dir():
        from headrace.state.checkpoint import erase

        done = erase(folder)
        yield f"tick {done.tick} is kept; {done.before:,} bytes of state are {done.after:,} now"
    elif (folder / "versions").is_dir() and (folder / "current").is_symlink():
        from headrace.io.files.table_files import erase_earlier

        yield f"{erase_earlier(folder)} earlier versions of the table are gone"
    elif folder.is_dir():
        from headrace.io.files.compaction import erase

        yield f"{erase(folder).merged:,} ticks of the changelog are one now"
    else:
        raise BadInput(
            f"{place} is not there",
            fix="give the folder of a checkpoint, changelog or table, or a store such as sqlite:PATH",
            path=place,
        )


def _is_sqlite(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_SQLITE)) == _SQLITE


def _check_exists(uri: str) -> None:
    """Raise `BadInput` if a SQLite store does not exist: opening it would create it."""
    kind, _, place = uri.partition(":")
    if kind == "sqlite" and not _is_sqlite(Path(local_path(place, "collections in SQLite"))):
        raise BadInput(
            f"there is no store of collections at {uri}",
            fix="name the file that a controller uses: --collections, or collections.db in its --state",
            path=uri,
        )


def _erase_collections(uri: str) -> Iterator[str]:
    from headrace.compute.collections.opening import open_collections

    _check_exists(uri)
    collections = open_collections(uri)
    try:
        kept = collections.erase()
    finally:
        collections.close()
    yield "what was deleted is erased"
    for id, bounds in kept.items():
        times = f"{bounds.since} to {bounds.upper}"
        yield f"but {id} can still be read as of {times}: what was deleted since stays"
