"""Everything that a source, a transformer and a sink may do, with the same events in both forms."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import pull as callback
from headrace.pull import Recorder, dataflow
from headrace.pull.pipeline_runtime import Runtime
from headrace.testing.pull import (
    RandomRuntime,
    Seen,
    SinkCase,
    SourceCase,
    TransformerCase,
    VirtualRuntime,
    reference_sink,
)
from headrace.testing.pull.neighbour_modules import sink_cases, source_cases, source_of, transformer_of
from tests.pull.dataflow import reference_modules
from tests.pull.dataflow.both_forms import both_ends

transformer_cases = st.builds(
    TransformerCase,
    stops_at=st.sampled_from([None, 1, 2, 4]),
    by=st.sampled_from([True, ValueError("of the transformer")]),
    sync=st.booleans(),
)


def happened(
    form: Any, source: SourceCase, through: list[TransformerCase], sink: SinkCase, runtime: Runtime
) -> list[str]:
    recorders = [Recorder(stop_at_once=False) for _ in range(len(through) + 1)]
    seen = Seen()
    modules = reference_modules if form is dataflow else None
    pieces = [modules.source_of(source) if modules else source_of(source)]
    for case, recorder in zip(through, recorders, strict=False):
        made = modules.transformer_of(case) if modules else transformer_of(case)
        pieces += [both_ends(form, recorder), made]
    end = modules.sink_of(sink, seen) if modules else reference_sink(sink, seen)
    run = form.pull(*pieces, both_ends(form, recorders[-1]), end).start(runtime)
    try:
        run.wait()  # closes the event loop, too
        failure = None
    except Exception as error:
        failure = error
    edges = [" ".join(map(str, recorder.events)) for recorder in recorders]
    return [*edges, repr((seen.values, seen.end, seen.order, seen.answers, failure))]


@given(
    st.sampled_from(source_cases(all=True)),
    st.lists(transformer_cases, max_size=2),
    st.sampled_from(sink_cases(all=True)),
    st.integers(0, 10_000) | st.none(),
)
def test_reference_modules_make_the_same_events_in_any_order(
    source: SourceCase, through: list[TransformerCase], sink: SinkCase, seed: int | None
) -> None:
    def runtime() -> Runtime:
        return VirtualRuntime() if seed is None else RandomRuntime(seed)

    one = happened(callback, source, through, sink, runtime())
    assert one == happened(dataflow, source, through, sink, runtime())
