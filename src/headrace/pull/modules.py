"""Modules as values: sources, transformers, sinks and duplexes, from which pipelines are composed.

Nothing runs before `Pipeline.run`. Each run opens the modules anew, so a module may be used repeatedly and in
several pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import SPAWN, refuse_async, synchronous_check
from headrace.pull.edge import CallbackEdge, PullEdge
from headrace.pull.fusion import Kernel, open_kernels
from headrace.pull.module_context import Module, open_module
from headrace.pull.protocol import AnswerTo, BatchRead, End, Layer, Read

if TYPE_CHECKING:
    from headrace.pull.pipeline_run import Run

_FIX = f"a plain function; {SPAWN}. Threads: DataflowSource.of and the like of headrace.pull.dataflow"


@dataclass(frozen=True, eq=False, slots=True)
class Primitive:
    """Primitive module: its name, and the user's source line that created it."""

    name: str
    location: SourceLocation


@dataclass(frozen=True, eq=False, slots=True)
class SourcePart(Primitive):
    """Primitive source.

    open:    creates the `read` of a running module.
    batches: `read` is a `BatchRead`.
    linear:  it must be asked again only after it has answered; an abort may come at any time.
    layer:   requests it understands, see `Layer`; the edge handles all others for it.
    width:   requests it works on at once; 0 if it answers immediately.
    """

    open: Callable[[Module], Read | BatchRead]
    batches: bool = False
    linear: bool = False
    width: int = 0
    layer: Layer = 3


@dataclass(frozen=True, eq=False, slots=True)
class TransformerPart(Primitive):
    """Primitive transformer; see `SourcePart`. `open` takes the edge to read from."""

    open: Callable[[Module, PullEdge], Read | BatchRead]
    batches: bool = False
    linear: bool = False
    width: int = 0
    layer: Layer = 3


@dataclass(frozen=True, eq=False, slots=True)
class KernelPart(Primitive):
    """Synchronous transformer without timing of its own, fused with neighbours of its kind.

    kernel: creates the function for a new run.
    """

    kernel: Callable[[], Kernel]


@dataclass(frozen=True, eq=False, slots=True)
class MarkPart(Primitive):
    """Marker without a module of its own: acts on the edge at its position, and returns the next edge."""

    mark: Callable[[PullEdge], object]


@dataclass(frozen=True, eq=False, slots=True)
class SinkPart(Primitive):
    """Primitive sink.

    open: starts reading from the edge, now or later; ends with `module.done` or `module.fail`.
    """

    open: Callable[[Module, PullEdge], object]


Through = TransformerPart | KernelPart | MarkPart


class Complete(Protocol):
    """Interface of a complete pipeline from sources to sinks; see `headrace.pull.compose.Pipeline`."""

    def open_in(self, run: Run) -> tuple[Module, ...]:
        """Open all modules in a run, and return those of the sinks."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class PullSource:
    """Source module, optionally followed by transformers.

    beside: complete pipelines to run together with it.
    """

    kind: ClassVar = "source"

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
    ) -> PullSource:
        """Create a primitive source, located at the caller's line. Parameters: see `SourcePart`."""
        refuse_async("PullSource.of", open, fix=_FIX)
        return cls(SourcePart(name, SourceLocation.of_caller(), open, batches, linear, width, layer))

    def open_in(self, run: Run) -> PullEdge:
        """Open the modules in a run, and return the edge to read from."""
        for pipeline in self.beside:
            pipeline.open_in(run)
        module = Module(run, self.part.name, self.part.location)
        read = open_module(module, self.part.open, module)
        behind = max((edge.depth for edge in module.inputs), default=0)
        edge = CallbackEdge(
            module,
            read,
            batches=self.part.batches,
            linear=self.part.linear,
            layer=self.part.layer,
            depth=self.part.width or behind,
        )
        return open_through(run, edge, self.then)


@dataclass(frozen=True, eq=False, slots=True)
class PullTransformer:
    """Transformer module, or several in sequence."""

    kind: ClassVar = "transformer"

    then: tuple[Through, ...]
    beside: tuple[Complete, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        open: Callable[[Module, PullEdge], Read | BatchRead],
        *,
        batches: bool = False,
        linear: bool = False,
        width: int = 0,
        layer: Layer = 3,
    ) -> PullTransformer:
        """Create a primitive transformer, located at the caller's line. Parameters: see `SourcePart`."""
        refuse_async("PullTransformer.of", open, fix=_FIX)
        return cls((TransformerPart(name, SourceLocation.of_caller(), open, batches, linear, width, layer),))

    @classmethod
    def of_kernel(cls, name: str, kernel: Callable[[], Kernel]) -> PullTransformer:
        """Create a synchronous transformer that can be fused with its neighbours. See `KernelPart`."""
        return cls((KernelPart(name, SourceLocation.of_caller(), kernel),))


@dataclass(frozen=True, eq=False, slots=True)
class PullSink:
    """Sink module, optionally preceded by transformers.

    behind: for a duplex with further modules, the duplex's source up to the last sink, whose result is that
            of the whole.
    """

    kind: ClassVar = "sink"

    part: SinkPart
    before: tuple[Through, ...] = ()
    beside: tuple[Complete, ...] = ()
    behind: Complete | None = None

    @classmethod
    def of(cls, name: str, open: Callable[[Module, PullEdge], object]) -> PullSink:
        """Create a primitive sink, located at the caller's line. See `SinkPart`."""
        refuse_async("PullSink.of", open, fix=_FIX)
        return cls(SinkPart(name, SourceLocation.of_caller(), open))

    def open_in(self, run: Run, edge: PullEdge) -> Module:
        """Open the modules in a run, reading from an edge, and return the module that holds the result."""
        for pipeline in self.beside:
            pipeline.open_in(run)
        edge = open_through(run, edge, self.before)
        module = Module(run, self.part.name, self.part.location)
        module.connect(edge)
        run.add_sink(module)
        run.runtime.enter(module.guard, self.part.open, module, edge)
        return module if self.behind is None else self.behind.open_in(run)[-1]


@dataclass(frozen=True, eq=False, slots=True)
class PullDuplex:
    """Source and sink of one resource: a connection, a process, a pair."""

    kind: ClassVar = "duplex"

    source: PullSource
    sink: PullSink
    name: str = "duplex"
    location: SourceLocation = field(default_factory=SourceLocation.of_caller)


AnyModule = PullSource | PullTransformer | PullSink | PullDuplex


def open_through(run: Run, edge: PullEdge, parts: Sequence[Through]) -> PullEdge:
    """Open transformers in sequence after an edge, and return the edge to read from."""
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


def open_transformer(run: Run, edge: PullEdge, part: TransformerPart) -> PullEdge:
    module = Module(run, part.name, part.location)
    module.connect(edge)
    return CallbackEdge(
        module,
        open_module(module, part.open, module, edge),
        batches=part.batches,
        linear=part.linear,
        layer=part.layer,
        depth=part.width + (min(edge.depth, 1) if part.linear else edge.depth),
    )


_CALLBACK_FIX = f"a plain function, or PullSource.of and the like; {SPAWN}"


def source(read: Read, *, name: str = "", linear: bool = True, layer: Layer = 3) -> PullSource:
    """Create a source from a function `read(abort, answer)`; see `headrace.pull.protocol`.

    linear: it is asked again only after it has answered. An abort may come at any time.
    layer:  requests it understands: 1 only asks (the edge then confirms an abort for it), 2 also aborts
            (a failure reaches it as an abort), 3 also errors.

    The same function serves every run; use `PullSource.of` for sources that open anew in each.
    """
    refuse_async("source", read, fix=_CALLBACK_FIX)
    return PullSource.of(name or _name(read), lambda _module: read, linear=linear, layer=layer)


def transformer(
    connect: Callable[[Read], Read], *, name: str = "", linear: bool = True, layer: Layer = 3
) -> PullTransformer:
    """Create a transformer from a function that takes the `read` of upstream and returns its own.

    linear, layer: see `source`. For a transformer of layer 1, the edge stops the modules upstream of it.
    """
    refuse_async("transformer", connect, fix=_CALLBACK_FIX)
    return PullTransformer.of(
        name or _name(connect), lambda _module, edge: connect(edge), linear=linear, layer=layer
    )


def sink(connect: Callable[[Read], Any], *, name: str = "") -> PullSink:
    """Create a sink from a function that takes the `read` of upstream and drives it.

    The result is the function's return value, once the stream has ended. The sink fails if the stream does.
    """
    checked = synchronous_check("sink", connect, fix=_CALLBACK_FIX)

    def open(module: Module, edge: PullEdge) -> None:
        result: Any = None

        def read(abort: End | None, answer: AnswerTo | None = None) -> None:
            def answered(end: End | None, value: Any = None, /) -> None:
                if answer is not None:
                    answer(end, value)
                if end is not None:
                    finish(end)

            edge(abort, answered)

        def finish(end: End) -> None:
            if end is True:
                module.done(result)
            else:
                module.fail(end, result)

        result = checked(connect(read))

    return PullSink.of(name or _name(connect), open)


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
