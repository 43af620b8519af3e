"""A valid trace in which one thing is changed breaks the rule about it, and is told so."""

from __future__ import annotations

from random import Random

import pytest

from penstock.pull.checker import check, rules
from penstock.pull.trace import Trace
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


def test_every_rule_of_the_specification_has_a_mutation() -> None:
    assert {mutation.rule for mutation in MUTATIONS} == set(rules("spec"))
