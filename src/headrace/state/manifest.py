"""Manifests: the flow and layout under which a checkpoint's ticks are run.

Each commit names the manifest of its tick. So a change of the flow, or of the number of shards, takes effect
with the first commit made under it, and a rewind to an earlier tick also restores the earlier manifest.

A manifest describes the rows of arrangements, for whoever reads state without its flow. The description is
JSON that stands beside the name of the slot. So a flow has to agree with it to go on with the state.
"""

from __future__ import annotations

import difflib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import polars as pl
from xxhash import xxh3_128_hexdigest

from headrace.arrangement.batch import (
    Layout,
    Order,
    SortedBatch,
    bounded,
    differs_from_next,
    masked,
    select,
    take,
)
from headrace.errors import FlowChanged, SourceLocation
from headrace.expr.code_runtime import NAN
from headrace.state.arranged_store import pieces_of
from headrace.state.chain import BatchChain, FileRef, Run, check_file, damaged, sync
from headrace.state.commit import read_checked, write_checked
from headrace.state.marked_values import ASIDE, ERASED


@dataclass(frozen=True, slots=True)
class Manifest:
    """Flow and layout of a checkpoint. shards: number of state shards.

    fingerprint: of the flow. description: of it, with the names of its state.
    layout:      where state lies. sinks: what output is written. All three as JSON.
    id:          of the checkpoint, for ever; given when the first one is written.
    """

    fingerprint: str
    description: Any
    shards: int = 1
    layout: Any = None
    sinks: Any = None
    id: str = ""

    def of(self, checkpoint: str) -> Manifest:
        """Return the manifest with the given checkpoint id, or a new id if it is empty."""
        return replace(self, id=checkpoint or uuid.uuid4().hex)

    def write(self, folder: Path, *, durable: bool = True) -> FileRef:
        """Write to a file below `folder`, named after its content hash."""
        body = {
            "id": self.id, "shards": self.shards, "fingerprint": self.fingerprint,
            "description": self.description, "layout": self.layout, "sinks": self.sinks,
        }  # fmt: skip
        place = folder / "manifest"
        place.mkdir(exist_ok=True)
        aside = place / f"{os.getpid()}.part"
        write_checked(aside, body, durable=durable)
        content = aside.read_bytes()
        digest = xxh3_128_hexdigest(content)
        path = place / f"{digest}.json"
        aside.rename(path)
        if durable:
            sync(place)
            sync(folder)
        return FileRef(path.relative_to(folder).as_posix(), len(content), digest)

    def arranged(self, chain: BatchChain) -> Iterator[tuple[str, DescribedRows]]:
        """Yield the arranged slots of a chain, each with the description of its columns."""
        forms = {
            f"{node['state']}.{what}": text
            for node in self.description
            for what, _, *form in node["keeps"]
            for text in form
        }
        for slot in chain.arranged:
            # An operator may be gone, and its state with it.
            if slot in forms:
                yield slot, DescribedRows.from_text(forms[slot])

    @classmethod
    def read(cls, folder: Path, ref: FileRef) -> Manifest:
        """Read the manifest named by a commit. Raises `CheckpointDamaged`."""
        path = folder / ref.name
        check_file(path, ref)
        body = read_checked(path)
        try:
            return cls(
                body["fingerprint"], body["description"], int(body["shards"]), body["layout"], body["sinks"],
                body["id"],
            )  # fmt: skip
        except (KeyError, ValueError, TypeError) as error:
            raise damaged(path, f"it is not a manifest: {error!r}") from error


Bind: TypeAlias = Callable[[Path, Manifest | None, int], Manifest]
"""Function that chooses the manifest of a run, given the folder and the last commit's manifest and tick (None
and 0 before the first). Raises `FlowChanged` if the run cannot resume.
"""


def exactly(manifest: Manifest) -> Bind:
    """Create a `Bind` that requires the last commit's manifest to equal `manifest`."""

    def bind(folder: Path, last: Manifest | None, tick: int) -> Manifest:
        if last is None:
            return manifest
        if last.fingerprint != manifest.fingerprint:
            difference = _line_diff(last.description, manifest.description)
            raise flow_changed(folder, f"What changed:\n{difference}", difference)
        check_shards(folder, last, manifest.shards)
        return last

    return bind


def as_it_is(folder: Path, last: Manifest | None, tick: int) -> Manifest:
    """A `Bind` that keeps the last manifest, for tools that run no flow.

    Raises `FlowChanged` where nothing is.
    """
    if last is None:
        raise FlowChanged(
            f"the checkpoint {folder} has no ticks",
            why="No flow was run with it, or its first tick was never committed.",
            fix="give the folder of a checkpoint that a flow was run with",
            checkpoint=str(folder),
        )
    return last


def flow_changed(
    folder: Path, why: str, difference: str, where: Sequence[SourceLocation] = ()
) -> FlowChanged:
    """Create the error for a flow that does not match the checkpoint. where: operators missing state."""
    return FlowChanged(
        f"the checkpoint {folder} belongs to another flow, or to another version of this one",
        where=where,
        why=why,
        fix="run the flow that wrote it, or give the changed flow an empty checkpoint folder;\n"
        "with the sinks as they are: `headrace run --adopt`",
        checkpoint=str(folder),
        diff=difference,
    )


def check_shards(folder: Path, last: Manifest, shards: int) -> None:
    """Raise `FlowChanged` if the checkpoint has a different number of shards."""
    if shards != last.shards:
        raise FlowChanged(
            f"the checkpoint {folder} has {last.shards} shards, not {shards}",
            why="in how many parts the state is divided is fixed while a flow runs.",
            fix=f"run with shards={last.shards}, or leave it out; to divide the state anew:\n"
            f"headrace reshard {folder} {shards} FLOW",
            checkpoint=str(folder),
            diff=f"shards: {last.shards} -> {shards}",
        )


def _line_diff(old: Any, new: Any) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), "checkpoint", "now", lineterm="", n=1)
    return "\n".join(lines)


def _lines(description: Any) -> list[str]:
    items = cast("list[Any]", description) if isinstance(description, list) else [description]
    return [item if isinstance(item, str) else json.dumps(item, sort_keys=True) for item in items]


@dataclass(frozen=True, slots=True)
class DescribedRows:
    """Columns of an arrangement and their meaning.

    keys:    names of the parts of a key. The layout may have more: then a key has rows under several values
             of these, 0 among them.
    bare:    a key is the value of its one part, and no tuple.
    read:    columns of a row that is kept; none where only numbers are kept by key.
    moments: columns of times in UTC.
    of_pair: a key is a pair of such a key and the last part.
    aside:   column that is `ASIDE` where a row is put aside until it is erased, and the columns with its
             values; none if no row is.
    """

    layout: Layout
    keys: tuple[str, ...]
    bare: bool
    read: tuple[str, ...]
    moments: frozenset[str]
    of_pair: bool = False
    aside: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return the description for a manifest."""
        layout = self.layout
        body = {
            "columns": [[name, _text_of(type)] for name, type in layout.types.items()],
            "by": [layout.keys, layout.sums, layout.nullable, layout.order, layout.wide],
            "keys": self.keys, "bare": self.bare, "read": self.read, "moments": sorted(self.moments),
            "of_pair": self.of_pair,
        }  # fmt: skip
        if self.aside:
            # Checkpoints from before there was such a column go on.
            body["aside"] = self.aside
        return json.dumps(body, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> DescribedRows:
        body = json.loads(text)
        keys, sums, nullable, order, wide = body["by"]
        layout = Layout(
            {name: _type_of(type) for name, type in body["columns"]},
            tuple(keys), tuple(sums), nullable,
            tuple(Order(*each) for each in order), tuple(map(tuple, wide)),
        )  # fmt: skip
        names, moments, aside = tuple(body["read"]), frozenset(body["moments"]), tuple(body.get("aside", ()))
        return cls(layout, tuple(body["keys"]), body["bare"], names, moments, body["of_pair"], aside)

    def pieces(self, folder: Path, runs: Iterable[Run]) -> Iterator[DescribedPiece]:
        """Read all rows, a piece at a time. Raises `CheckpointDamaged`."""
        for rows in pieces_of(folder, self.layout, runs):
            yield DescribedPiece(self, rows)


@dataclass(frozen=True)
class DescribedPiece:
    """All rows of some keys of the layout."""

    of: DescribedRows
    rows: SortedBatch

    @cached_property
    def groups(self) -> Any:
        """Number of the key of each row."""
        layout, codes = self.of.layout, self.rows.codes
        if not layout.values:
            return np.arange(len(codes))
        fresh = np.ones(len(codes), np.bool_)
        fresh[1:] = codes[1:] != codes[:-1]
        keys = select(self.rows.frame, layout.keys)
        if layout.exact or not differs_from_next(keys, np.flatnonzero(~fresh) - 1).any():
            return np.cumsum(fresh) - 1
        # Rows of several keys with one code may lie among each other.
        numbered = keys.with_columns(pl.Series("#", np.arange(len(codes))))
        first = numbered.select(pl.first("#").over(keys.columns)).to_series().to_numpy()
        return np.unique(first, return_inverse=True)[1]

    def __len__(self) -> int:
        """Return the number of keys, each counted once over all pieces."""
        further = self.of.layout.keys[len(self.of.keys) :]
        if not self.of.keys or not further:
            return int(self.groups.max()) + 1
        _, first = np.unique(self.groups, return_index=True)
        parts = select(take(self.rows.frame, first), further).get_columns()
        return sum(not any(values) for values in zip(*parts, strict=True))

    @property
    def keys(self) -> list[Any]:
        """Return the keys by number, in the form used by operators."""
        _, first = np.unique(self.groups, return_index=True)
        if not self.of.keys:
            return [()] * len(first)
        columns = self._values(take(self.rows.frame, first), self.of.keys)
        if self.of.of_pair:
            *parts, last = columns
            own = parts[0] if self.of.bare else zip(*parts, strict=True)
            return list(zip(own, last, strict=True))
        return columns[0] if self.of.bare else list(zip(*columns, strict=True))

    def value(self, key: int) -> Any:
        """Return the value of a key: rows with their sums, or only sums. A single sum is not in a tuple."""
        rows = take(self.rows.frame, np.flatnonzero(self.groups == key))
        sums = self._values(rows, self.of.layout.sums)
        single = len(sums) == 1
        if not self.of.read:
            return sums[0][0] if single else tuple(column[0] for column in sums)
        found: dict[Any, Any] = {}
        for row, *added in zip(zip(*self._values(rows, self.of.read), strict=True), *sums, strict=True):
            known = found.get(row, (0,) * len(added))
            found[row] = tuple(one + other for one, other in zip(known, added, strict=True))
        return {row: total[0] for row, total in found.items()} if single else found

    @property
    def bytes(self) -> int:
        """Return the size of the columns."""
        return int(self.rows.frame.estimated_size())

    @property
    def erased(self) -> SortedBatch:
        """Return the rows with their set-aside values erased."""
        rows = self.rows
        if not self.of.aside:
            return rows
        kind, *values = self.of.aside
        kinds = rows.frame[kind].to_numpy()
        aside = kinds == ASIDE
        if not aside.any():
            return rows
        made = {name: masked(rows.frame[name], ~aside) for name in values}
        made[kind] = pl.Series(kind, np.where(aside, ERASED, kinds).astype(kinds.dtype))
        frame = pl.DataFrame([made.get(name, rows.frame[name]) for name in rows.frame.columns])
        return SortedBatch(rows.codes, frame, rows.bounds)

    def divided(self, parts: Sequence[int]) -> Iterator[tuple[int, SortedBatch]]:
        """Divide the rows. parts: for each group, the number of its part."""
        to = np.asarray(parts, np.int64)[self.groups]
        rows = self.rows
        for part in np.unique(to).tolist():
            at = np.flatnonzero(to == part)
            yield part, bounded(self.of.layout, rows.codes[at], take(rows.frame, at))

    def _values(self, frame: pl.DataFrame, names: Sequence[str]) -> list[list[Any]]:
        return [list(map(_internal(name in self.of.moments), frame[name].to_list())) for name in names]


def _internal(moment: bool) -> Any:
    if moment:
        return lambda value: None if value is None else value.replace(tzinfo=UTC)
    return lambda value: NAN if value != value else value


_TYPES = {str(type): type for type in (
    pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Int128(), pl.UInt8(), pl.UInt16(),
    pl.UInt32(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.String(), pl.Binary(), pl.Date(),
    pl.Datetime("us"), pl.Duration("us"),
)}  # fmt: skip


def _text_of(type: pl.DataType) -> Any:
    if isinstance(type, pl.Decimal):
        return [type.precision, type.scale]
    assert str(type) in _TYPES, type
    return str(type)


def _type_of(text: Any) -> pl.DataType:
    return pl.Decimal(*text) if isinstance(text, list) else _TYPES[text]
