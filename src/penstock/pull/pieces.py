"""Pieces: what pipelines are composed of, as plain values. Nothing runs before `Pipeline.run`.

A piece is a source, a transformer, a sink or a duplex, and says so; each run opens
fresh modules of it, so a piece may be used again and in several pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.fused import Kernel, open_kernels
from penstock.pull.module import Module
from penstock.pull.opening import opened
from penstock.pull.protocol import BatchRead, Layer, Read
from penstock.pull.synchronous import SPAWN, refuse_async

if TYPE_CHECKING:
    from penstock.pull.run import Run

_FIX = f"a plain function; {SPAWN}. Threads: Source.of and the like of penstock.pull.dataflow"


@dataclass(frozen=True, eq=False, slots=True)
class Primitive:
    """A primitive module: its name, and the user's line that wrote it."""

    name: str
    location: SourceLocation


@dataclass(frozen=True, eq=False, slots=True)
class SourcePart(Primitive):
    """open:    makes the `read` of a new module.
    batches: `read` is a `BatchRead`.
    linear:  it must not be asked again before it has answered; an abort may come at any time.
    layer:   requests that it understands, see `Layer`; the edge acts for it where it does not.
    width:   how many requests it works on at once while others wait; 0 where it answers at once.
    """

    open: Callable[[Module], Read | BatchRead]
    batches: bool = False
    linear: bool = False
    width: int = 0
    layer: Layer = 3


@dataclass(frozen=True, eq=False, slots=True)
class TransformerPart(Primitive):
    """As `SourcePart`; `open` is given the edge to read from."""

    open: Callable[[Module, Edge], Read | BatchRead]
    batches: bool = False
    linear: bool = False
    width: int = 0
    layer: Layer = 3


@dataclass(frozen=True, eq=False, slots=True)
class KernelPart(Primitive):
    """A synchronous transformer without timing of its own; neighbours of this kind run as one module.

    kernel: makes the function for a new run.
    """

    kernel: Callable[[], Kernel]


@dataclass(frozen=True, eq=False, slots=True)
class MarkPart(Primitive):
    """No module: does something to the edge at its place, and gives back the edge to go on with."""

    mark: Callable[[Edge], object]


@dataclass(frozen=True, eq=False, slots=True)
class SinkPart(Primitive):
    """open: begins to read from the edge, now or later; ends with `module.done` or `module.fail`."""

    open: Callable[[Module, Edge], object]


Through = TransformerPart | KernelPart | MarkPart


class Complete(Protocol):
    """A pipeline from sources to sinks: see `penstock.pull.pipeline.Pipeline`."""

    def open_in(self, run: Run) -> tuple[Module, ...]:
        """Open new modules of all its pieces in a run; those of its sinks."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """A module that is read from; or one followed by transformers.

    beside: complete pipelines that run together with it.
    """

    part: SourcePart
    then: tuple[Through, ...] = ()
    beside: tuple[Complete, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        open: Callable[[Module], Read | BatchRead],
        *,
        batches: bool = False,
        linear: bool = False,
        width: int = 0,
        layer: Layer = 3,
    ) -> Source:
        """A primitive source, named at the caller's line. Parameters: see `SourcePart`."""
        refuse_async("Source.of", open, fix=_FIX)
        return cls(SourcePart(name, SourceLocation.of_caller(), open, batches, linear, width, layer))

    def open_in(self, run: Run) -> Edge:
        """Open new modules of it in a run; the edge to read from."""
        for pipeline in self.beside:
            pipeline.open_in(run)
        module = Module(run, self.part.name, self.part.location)
        read = opened(module, self.part.open, module)
        behind = max((edge.depth for edge in module.inputs), default=0)
        edge = Edge(
            module,
            read,
            batches=self.part.batches,
            linear=self.part.linear,
            layer=self.part.layer,
            depth=self.part.width or behind,
        )
        return open_through(run, edge, self.then)


@dataclass(frozen=True, eq=False, slots=True)
class Transformer:
    """A module that reads and is read from; or several, one after the other."""

    then: tuple[Through, ...]
    beside: tuple[Complete, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        open: Callable[[Module, Edge], Read | BatchRead],
        *,
        batches: bool = False,
        linear: bool = False,
        width: int = 0,
        layer: Layer = 3,
    ) -> Transformer:
        """A primitive transformer, named at the caller's line. Parameters: see `SourcePart`."""
        refuse_async("Transformer.of", open, fix=_FIX)
        return cls((TransformerPart(name, SourceLocation.of_caller(), open, batches, linear, width, layer),))

    @classmethod
    def of_kernel(cls, name: str, kernel: Callable[[], Kernel]) -> Transformer:
        """A synchronous transformer that may be fused with its neighbours. See `KernelPart`."""
        return cls((KernelPart(name, SourceLocation.of_caller(), kernel),))


@dataclass(frozen=True, eq=False, slots=True)
class Sink:
    """A module that reads; or transformers followed by one.

    behind: where it is a duplex with something behind it: what the duplex gives, up to the last sink,
            whose result is that of the whole.
    """

    part: SinkPart
    before: tuple[Through, ...] = ()
    beside: tuple[Complete, ...] = ()
    behind: Complete | None = None

    @classmethod
    def of(cls, name: str, open: Callable[[Module, Edge], object]) -> Sink:
        """A primitive sink, named at the caller's line. See `SinkPart`."""
        refuse_async("Sink.of", open, fix=_FIX)
        return cls(SinkPart(name, SourceLocation.of_caller(), open))

    def open_in(self, run: Run, edge: Edge) -> Module:
        """Open new modules of it in a run, reading from an edge; the one that gives the result."""
        for pipeline in self.beside:
            pipeline.open_in(run)
        edge = open_through(run, edge, self.before)
        module = Module(run, self.part.name, self.part.location)
        module.connect(edge)
        run.sink(module)
        run.runtime.enter(module.guard, self.part.open, module, edge)
        return module if self.behind is None else self.behind.open_in(run)[-1]


@dataclass(frozen=True, eq=False, slots=True)
class Duplex:
    """A source and a sink of one thing: a connection, a process, a pair."""

    source: Source
    sink: Sink
    name: str = "duplex"
    location: SourceLocation = field(default_factory=SourceLocation.of_caller)


Piece = Source | Transformer | Sink | Duplex


def open_through(run: Run, edge: Edge, parts: Sequence[Through]) -> Edge:
    """Open transformers one after the other behind an edge; the edge to read from."""
    for is_kernel, group in groupby(parts, lambda part: isinstance(part, KernelPart)):
        found = list(group)
        if is_kernel:
            kernels = [part for part in found if isinstance(part, KernelPart)]
            for together in [kernels] if run.fuse else [[kernel] for kernel in kernels]:
                edge = open_kernels(run, edge, together)
            continue
        for part in found:
            if isinstance(part, MarkPart):
                part.mark(edge)
            else:
                assert isinstance(part, TransformerPart)
                edge = open_transformer(run, edge, part)
    return edge


def open_transformer(run: Run, edge: Edge, part: TransformerPart) -> Edge:
    module = Module(run, part.name, part.location)
    module.connect(edge)
    return Edge(
        module,
        opened(module, part.open, module, edge),
        batches=part.batches,
        linear=part.linear,
        layer=part.layer,
        depth=part.width + (min(edge.depth, 1) if part.linear else edge.depth),
    )
