"""TableFiles sink: the current rows as Parquet files, replaced atomically each tick.

    <path>/current                                       a symbolic link to the newest version
    <path>/versions/tick=12/bucket-0003.parquet          columns of the stream, nothing else
    <path>/versions/tick=12/_bucket-0003.held            rows held back, if any, with a column `weight`
    <path>/_staging/...                                  buckets of versions that are not assembled

Read `<path>/current/*.parquet`. The link is switched by a rename, so a reader that resolves it once sees a
consistent tick. The previous version is kept for active readers; older ones are removed.

Rows are divided into a fixed number of buckets by the hash of their key. A tick rewrites the buckets that
have changed, and takes over the others by hard link (by copy on a file system without links). So its cost
depends on the buckets it touches; choose `buckets` for about 10,000 rows in each.

**For tasks that write in parallel**: each calls `stage(...)` with all changes of some buckets (assigned by
`bucketing(...)`) and reports the names it receives; then one process calls `assemble(path, tick, names)`
before the commit and `publish` after it. Begin with `create` or `recover`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headrace.errors import BadInput
from headrace.expr.expression_errors import explains_calls
from headrace.expr.types import Row, Schema
from headrace.expr.value_keys import with_representatives
from headrace.file_system import local_path, remove_empty, remove_folder, write_file
from headrace.io.keyed_tables import Bucketing, HeldBack, TableKey, build_bucketing, duplicate_key_error
from headrace.io.sink import (
    Contents,
    ReadableWriter,
    SinkRequest,
    SinkTarget,
    Writer,
    column_names,
    held_back_of,
    open_sink,
    other_rows,
    refuse_later_ticks,
    refuse_mid_run_start,
)
from headrace.io.source import Guarantee, refuse_untyped, set_fields
from headrace.tables.version_folders import STAGING, VersionFolders, share_files, tick_folders

CURRENT = "current"


def erase_earlier(path: str | os.PathLike[str]) -> int:
    """Remove all versions of a table but the current one; return their number. No run may be active."""
    versions = versions_of(path)
    others = {*versions.numbers()} - {versions.linked(Path(path, CURRENT))}
    for number in others:
        versions.remove(number)
    versions.discard_staged()
    remove_folder(Path(path, STAGING))
    return len(others)


@dataclass(frozen=True)
class TableFiles(SinkTarget):
    """Sink with the current rows of a stream, exactly once with a checkpoint.

    path:    a folder, created if missing.
    key:     columns that identify a row; None: rows may be duplicated.
             A row that is retracted before it is inserted is held back, and appears in no file.
    buckets: number of files that the rows are divided into, fixed for the lifetime of the table.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("exactly once", "a tick's version appears by switching a link")
    path: str
    key: tuple[str, ...] | None = None
    buckets: int = 16

    @explains_calls()
    def __init__(
        self, path: str | os.PathLike[str], key: Iterable[str] | str | None = None, buckets: int = 16
    ) -> None:
        if buckets < 1:
            raise BadInput(f"a table has {buckets} buckets", fix="give 1 or more, or leave it out")
        path = local_path(path, type(self).__name__)
        set_fields(self, path=path, key=None if key is None else column_names(key), buckets=buckets)

    @property
    def destination(self) -> Hashable:
        return "files", os.path.realpath(self.path)


def bucket_file(bucket: int) -> str:
    return f"bucket-{bucket:04d}.parquet"


def held_file(bucket: int) -> str:
    # Hidden from readers of all Parquet files of a version, by name or by folder.
    return f"_bucket-{bucket:04d}.held"


def versions_of(path: str | os.PathLike[str]) -> VersionFolders:
    """Return the versions of a table, published or not, by their ticks."""
    return tick_folders(Path(path, "versions"))


def base_of(path: str | os.PathLike[str], tick: int) -> Path:
    """Return the version a tick builds on: the newest before it, ignoring earlier attempts at the tick."""
    versions = versions_of(path)
    before = versions.latest(before=tick)
    assert before is not None, "create() comes first"
    return versions.folder(before)


# --- in parallel tasks ---------------------------------------------------------------


def create(sink: str, target: TableFiles, schema: Schema) -> None:
    """Create an empty table unless it exists. Raises `BadInput` for one with other buckets."""
    from headrace.io.arrow import write_part

    number, versions = Path(target.path, "buckets"), versions_of(target.path)
    if versions.latest() is None:
        staged = versions.stage(0)
        write_file(number, f"{target.buckets}\n".encode(), durable=True)
        staged.mkdir()
        # Bucket 0 has a file even if it is empty, so that readers find the columns.
        write_part(staged / bucket_file(0), [], schema, weighted=False, durable=True)
        versions.publish(0, staged)
        publish(target.path, 0)
    found = int(number.read_text())
    if found != target.buckets:
        raise BadInput(
            f"sink {sink!r}: the table at {target.path} has {found} buckets, not {target.buckets}",
            why="rows would be looked up in the wrong bucket",
            fix=f"give buckets={found}, or another path",
            sink=sink,
        )


def stage(
    sink: str,
    target: TableFiles,
    tick: int,
    name: str,
    changes: Sequence[Row],
    schema: Schema,
    *,
    durable: bool = True,
    sources: tuple[str, ...] = (),
) -> Iterator[tuple[str, int]]:
    """Apply a tick's changes (weight last) to the buckets they touch, and write these buckets.

    Yields per bucket its name for `assemble`, and its number of changes. `name` is unique among the tasks
    and attempts of this tick. `changes` are all changes of their buckets.
    sources: of the rows, for errors. Raises `DuplicateKey` if a key has two rows.
    """
    from headrace.io.arrow import write_part

    by = build_bucketing(sink, schema, target.key, target.buckets)
    buckets: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in with_representatives(changes, schema):
        buckets[by.bucket(row)].append(row)
    base, folder = base_of(target.path, tick), Path(target.path, STAGING)
    folder.mkdir(parents=True, exist_ok=True)
    for bucket, part in sorted(buckets.items()):
        rows, held = _changed(base, bucket, part, schema)
        twice = None if target.key is None else _two_of_a_key(by, rows)
        if twice is not None:
            assert target.key is not None
            less = _held_of_changed_keys(by, base, buckets, schema)
            raise duplicate_key_error(
                TableKey(sink, schema, target.key, sources), *twice, held=less, fix=_FIX
            )
        staged = f"{bucket:04d}-{tick:08d}-{name}.parquet"
        write_part(folder / staged, rows, schema, weighted=False, durable=durable)
        if held:
            write_part(_held_beside(folder / staged), held, schema, durable=durable)
        yield staged, len(part)


_FIX = "give a key that is unique, or none to keep all rows"


def _changed(base: Path, bucket: int, changes: Sequence[Row], schema: Schema) -> tuple[list[Row], list[Row]]:
    """Apply changes to a bucket of a version. Returns its rows and its held-back rows, weight last."""
    from headrace.io.arrow import read_part

    file, held_before = base / bucket_file(bucket), base / held_file(bucket)
    rows = read_part(file, schema, weighted=False) if file.exists() else []
    if held_before.exists():
        changes = [*read_part(held_before, schema), *changes]
    return apply_changes(with_representatives(rows, schema), with_representatives(changes, schema))


def _held_of_changed_keys(
    by: Bucketing, base: Path, buckets: Mapping[int, Sequence[Row]], schema: Schema
) -> list[Row]:
    """List held-back rows of the keys changed by a tick, weight last."""
    changed = {by.key(row) for part in buckets.values() for row in part}
    held = (_changed(base, bucket, part, schema)[1] for bucket, part in buckets.items())
    return [row for part in held for row in part if by.key(row) in changed]


def _held_beside(staged: Path) -> Path:
    return staged.with_suffix(".held")


def apply_changes(
    rows: Sequence[Row], changes: Sequence[Row]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Apply changes to rows, keeping their order. Returns the rows and the held-back rows, weight last."""
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        counts[row] += 1
    for *values, weight in changes:
        counts[tuple(values)] += weight
    shown = [row for row, count in counts.items() for _ in range(count)]
    return shown, [(*row, count) for row, count in counts.items() if count < 0]


def _two_of_a_key(by: Bucketing, rows: Sequence[Row]) -> tuple[Row, Row] | None:
    seen: dict[Row, Row] = {}
    for row in rows:
        key = by.key(row)
        if key in seen:
            return seen[key], row
        seen[key] = row
    return None


def assemble(path: str | os.PathLike[str], tick: int, names: Iterable[str], *, durable: bool = True) -> None:
    """Assemble the unpublished version of a tick from staged buckets, taking over all others unchanged."""
    versions, made = versions_of(path), set[str]()
    folder = versions.stage(tick)
    folder.mkdir()
    for name in names:
        bucket, staged = int(name.partition("-")[0]), Path(path, STAGING, name)
        os.rename(staged, folder / bucket_file(bucket))
        if _held_beside(staged).exists():
            os.rename(_held_beside(staged), folder / held_file(bucket))
        made |= {bucket_file(bucket), held_file(bucket)}
    base = base_of(path, tick)
    kept = (file for file in base.iterdir() if file.name not in made)
    share_files(kept, base, folder, durable=durable)
    versions.publish(tick, folder, durable=durable)


def published_tick(path: str | os.PathLike[str]) -> int | None:
    """Return the tick of the version that readers see; None if there is none."""
    return versions_of(path).linked(Path(path, CURRENT))


def publish(path: str | os.PathLike[str], tick: int, *, durable: bool = True) -> None:
    """Point `current` at the version of `tick`, if it exists. Idempotent.

    The link never moves to an older version, even if a superseded driver calls this late.
    """
    versions = versions_of(path)
    if tick not in versions.numbers() or (published_tick(path) or 0) > tick:
        return
    versions.point(Path(path, CURRENT), tick, durable=durable)
    versions.retain(versions.numbers()[-2:])


def recover(path: str | os.PathLike[str], tick: int, *, durable: bool = True) -> None:
    """Publish the newest version up to the committed `tick` after a crash, and delete later ones."""
    versions = versions_of(path)
    versions.retain(kept := [each for each in versions.numbers() if each <= tick])
    versions.discard_staged()
    if kept:
        publish(path, kept[-1], durable=durable)
    remove_folder(Path(path, STAGING))


# --- in one process ------------------------------------------------------------------


class TableWriter(ReadableWriter):
    """Sink writer of a table in a single process."""

    def __init__(self, target: TableFiles, request: SinkRequest) -> None:
        self._target = target
        self._request = request
        build_bucketing(request.name, request.schema, target.key, target.buckets)

    def recover(self, tick: int) -> None:
        path = Path(self._target.path)
        refuse_mid_run_start(self._request.name, path, tick, versions_of(path).latest() is not None)
        self._refuse_ticks_after(tick)
        recover(path, tick, durable=self._request.durable)
        create(self._request.name, self._target, self._request.schema)

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        request = self._request
        staged = stage(
            request.name,
            self._target,
            tick,
            "0",
            rows,
            request.schema,
            durable=request.durable,
            sources=request.sources,
        )
        self.assemble(tick, [name for name, _ in staged])

    def _refuse_ticks_after(self, tick: int) -> None:
        published = published_tick(self._target.path)
        if published is not None:
            refuse_later_ticks(self._request.name, self._target.path, published, tick)

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        self._refuse_ticks_after(tick - 1)  # another run may have begun to write there since
        assemble(self._target.path, tick, names, durable=self._request.durable)

    def publish(self, tick: int) -> None:
        publish(self._target.path, tick, durable=self._request.durable)

    def held_back(self) -> HeldBack | None:
        from headrace.io.arrow import read_part

        held = [row for file in self._files(held_file(0)) for row in read_part(file, self._request.schema)]
        return held_back_of(held, self._request)

    def contents(self) -> Contents | None:
        tick = published_tick(self._target.path)
        return None if tick is None else Contents(tick, self._rows())

    def _rows(self) -> Iterator[Row]:
        from headrace.io.arrow import read_known_part

        name, schema, target = self._request.name, self._request.schema, self._target
        by = build_bucketing(name, schema, target.key, target.buckets)
        for like, weighted in ((bucket_file(0), False), (held_file(0), True)):
            for file in self._files(like):
                try:
                    rows = read_known_part(file, schema, weighted=weighted)
                except ValueError as error:
                    raise other_rows(name, file, str(error)) from error
                if any(bucket_file(by.bucket(row)) != f"{file.stem.lstrip('_')}.parquet" for row in rows):
                    raise other_rows(name, file, "Its rows are divided by another key.")
                yield from rows if weighted else ((*row, 1) for row in rows)

    def _files(self, like: str) -> list[Path]:
        """List the current version's files of all buckets. like: name pattern, given for bucket 0."""
        return sorted(Path(self._target.path, CURRENT).glob(like.replace("0000", "*")))

    def close(self) -> None:
        remove_empty(Path(self._target.path, STAGING))


@open_sink.register
def _(sink: TableFiles, request: SinkRequest) -> Writer:
    refuse_untyped(request.schema, f"sink {request.name!r}, table files")
    return TableWriter(sink, request)
