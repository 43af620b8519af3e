"""Facts of edges: what propagation finds, against the definition and by example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hypothesis import given

from headrace.analysis import Verdict, analyse
from headrace.analysis.analysis import find_facts
from headrace.graph.node import FlowGraph
from headrace.graph.operator_declarations import FACT_NAMES, Facts, meet
from tests.analysis.graphs import Draft, Remembering, graphs


@given(graphs())
def test_facts_are_the_greatest_that_agree_with_every_operator(graph: FlowGraph) -> None:
    facts = [meet(()) for _ in graph.nodes]
    for _ in range(len(FACT_NAMES) * len(graph.nodes) + 1):
        facts = [n.operator.output_facts([facts[i] for i in n.inputs]) for n in graph.nodes]
    assert list(find_facts(graph)) == facts


def test_a_loop_over_bounded_rows_is_bounded() -> None:
    draft = Draft()
    seed, again = draft.source(bounded=True), draft.feedback()
    draft.close(again, draft.union(seed, again))
    assert find_facts(draft.graph())[again] == Facts(bounded=True, append=True, ordered=False)


def test_one_entry_that_takes_rows_back_makes_the_whole_loop_do_so() -> None:
    draft = Draft()
    seed, again, table = draft.source(), draft.feedback(), draft.source(append=False)
    draft.close(again, draft.union(seed, again, table))
    assert not find_facts(draft.graph())[again].append


def test_what_was_subtracted_is_append_only_if_all_that_is_subtracted_comes_first() -> None:
    draft = Draft()
    due, paid_at_once, paid_later = draft.source(), draft.source(bounded=True), draft.source()
    sure, unsure = draft.difference(due, paid_at_once), draft.difference(due, paid_later)
    facts = find_facts(draft.graph())
    assert facts[sure].append
    assert not facts[unsure].append


def test_a_reason_for_a_delay_makes_answers_depend_on_the_cut() -> None:
    draft = Draft()
    source = draft.source()
    plain, guarded = draft.defer(source), draft.defer(source, "why not")
    facts = find_facts(draft.graph())
    assert facts[plain].det
    assert not facts[guarded].det


def test_verdicts_tell_growing_answers_from_corrected_and_guarded_ones() -> None:
    draft = Draft()
    source = draft.source()
    draft.sink(draft.distinct(source))
    draft.sink(draft.aggregate(source))
    draft.sink(draft.defer(source, "why not"))
    assert list(analyse(draft.graph()).verdicts.values()) == [
        Verdict.NO_COORDINATION,
        Verdict.DETERMINISTIC,
        Verdict.GUARDED,
    ]


@dataclass(frozen=True, slots=True)
class AtLeast(Remembering):
    """Whether a value ever was above a bound: it says so once, whatever happens to the value then."""

    kind: ClassVar[str] = "at_least"

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True)


def test_an_answer_that_grows_needs_coordination_if_it_comes_from_what_does_not() -> None:
    draft = Draft()
    reached = draft.add(AtLeast(), draft.aggregate(draft.source()))
    draft.sink(reached)
    analysis = analyse(draft.graph())
    assert analysis.facts[reached].append
    assert list(analysis.verdicts.values()) == [Verdict.DETERMINISTIC]
