"""A valid trace in which one thing is changed breaks the rule about it, and is told so."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pull.rules.checker import PROFILES, Profile, check, rules
from headrace.pull.rules.trace import Answer, AnswerPort, Event, Request, RequestPort, Trace, parse
from tests.pull.rules.mutations import MUTATIONS, Mutation
from tests.pull.rules.pair_model import walk
from tests.pull.rules.transformer_model import Walk


def broken(trace: Trace) -> set[str]:
    return {violation.rule.rpartition(".")[2] for violation in check(trace)}


def mutants(mutation: Mutation, seeds: range) -> list[tuple[int, Trace, Trace]]:
    """Seeds, valid traces, and what became of those that a mutation applies to."""
    found: list[tuple[int, Trace, Trace]] = []
    for seed in seeds:
        random = Random(seed)
        steps = random.randint(1, 12)
        valid = (
            walk(random, steps) if mutation.of == "pair" else Walk(random, 3).run(2 * steps, complete=True)
        )
        mutant = mutation(random, valid)
        if mutant is not None and mutant != valid:
            found.append((seed, valid, mutant))
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mutate.__name__)
@pytest.mark.seeds(600, together=600)
def test_a_mutant_is_named_with_the_rule_that_it_breaks(mutation: Mutation, seeds: range) -> None:
    found = mutants(mutation, seeds)
    assert len(found) >= 10, "the mutation hardly ever applies"
    for seed, valid, mutant in found:
        said = broken(mutant)
        right = said == {mutation.rule} if mutation.alone else mutation.rule in said
        assert right, f"seed {seed}: {valid}  ->  {mutant}: {said}"


def test_a_transformer_that_is_told_to_end_may_fail_by_itself_before_upstream_confirms() -> None:
    """Seed 3044404889 made this of a valid trace, as if it broke T8."""
    begins = "D:done1 D:ask2 TI:done1 D:ask3 TO:ans2=error(G) D:ask4 TI:ask2 U:ansT2=done"
    ends = "TI:ask3 U:ansT3=done TO:ans3=error(G) TO:ans4=error(G)"
    assert broken(parse([*begins.split(), *ends.split()], layer=3)) == set()


def test_every_rule_of_the_specification_has_a_mutation() -> None:
    assert {mutation.rule for mutation in MUTATIONS} == set(rules("spec"))


# --- the order of answers, against an oracle ---------------------------------------------------

ORDER: dict[Profile, str] = {"spec": "P3", "docs": "S3", "strict": "I4"}
MISSING: dict[Profile, str] = {"spec": "P9", "docs": "S0", "strict": "I2"}


@dataclasses.dataclass
class Waiting:
    """One edge, read event by event. overtaken: an answer came while an earlier request had none."""

    below: RequestPort
    above: AnswerPort
    open: list[int] = dataclasses.field(default_factory=list[int])
    overtaken: bool = False
    stopped: bool = False
    value_after_a_stop: bool = False

    def read(self, event: Event) -> None:
        if isinstance(event, Request) and event.port == self.below:
            self.stopped = self.stopped or event.terminates
            if event.expects_answer:
                self.open.append(event.index)
        elif isinstance(event, Answer) and event.port == self.above and event.index in self.open:
            self.overtaken = self.overtaken or self.open[0] != event.index
            self.open.remove(event.index)
            self.value_after_a_stop = self.value_after_a_stop or (self.stopped and event.kind == "value")

    def order_is_broken(self, profile: Profile) -> bool:
        # S3 is about values after a stop, too.
        return self.overtaken or (profile == "docs" and self.value_after_a_stop)


def edges_of(trace: Trace) -> dict[str, Waiting]:
    """The edges of a trace by the prefix of their rules, as the oracle sees them."""
    edges = (
        {"TI.": Waiting("TI", "U"), "TO.": Waiting("D", "TO")}
        if trace.of_transformer
        else {"": Waiting("D", "U")}
    )
    for event in trace.events:
        for edge in edges.values():
            edge.read(event)
    return edges


def assert_order_is_judged_as_by_the_oracle(trace: Trace) -> None:
    for profile in PROFILES:
        said = {violation.rule for violation in check(trace, profile)}
        for prefix, edge in edges_of(trace).items():
            told = f"{prefix}{ORDER[profile]}" in said
            assert told == edge.order_is_broken(profile), f"{profile}: {trace}: {said}"
            told = f"{prefix}{MISSING[profile]}" in said
            assert told or not (trace.complete and edge.open), f"{profile}: {trace}: {said}"


def jumbled(random: Random, trace: Trace, changes: int) -> Trace:
    """With answers left out, and answers moved to other places."""
    events = list(trace.events)
    for _ in range(changes):
        places = [at for at, event in enumerate(events) if isinstance(event, Answer)]
        if not places:
            break
        answer = events.pop(random.choice(places))
        if random.random() < 0.5:
            events.insert(random.randint(0, len(events)), answer)
    return dataclasses.replace(trace, events=tuple(events))


OVERTAKEN_AND_NEVER_ANSWERED = parse("D:ask1 D:abort2 U:ans2=done", layer=2)


@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(0, 4), st.booleans(), st.booleans())
def test_order_is_judged_as_by_an_oracle_whatever_answers_are_missing(
    seed: int, steps: int, changes: int, complete: bool, transformer: bool
) -> None:
    random = Random(seed)
    valid = Walk(random, 3).run(2 * steps, complete=True) if transformer else walk(random, steps)
    trace = dataclasses.replace(jumbled(random, valid, changes), complete=complete)
    assert_order_is_judged_as_by_the_oracle(trace)


@pytest.mark.parametrize("complete", [True, False])
def test_an_answer_that_overtakes_a_request_is_named_though_that_is_never_answered(complete: bool) -> None:
    trace = dataclasses.replace(OVERTAKEN_AND_NEVER_ANSWERED, complete=complete)
    assert_order_is_judged_as_by_the_oracle(trace)
    for profile in PROFILES:
        missing = [MISSING[profile]] if complete else []
        assert [v.rule for v in check(trace, profile)] == [*missing, ORDER[profile]]
