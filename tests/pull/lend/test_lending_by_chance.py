"""A lender, whatever its input, its output and its borrowers do, and in whichever order."""

from __future__ import annotations

import pytest

from tests.pull.lend.lending_by_chance import ByChance, InputError, OutputError


@pytest.mark.seeds(1000, together=50)
def test_results_come_in_order_and_once_whatever_happens(seeds: range) -> None:
    for seed in seeds:
        play = ByChance(seed)
        play.play()
        seen = f"seed={seed}: {' '.join(play.trace)}"
        assert play.run.finished, seen
        results = [10 * value for value in range(1, play.input.given + 1)]
        assert play.output.got == results[: len(play.output.got)], seen
        end = play.output.end
        if play.case.input_ends:
            assert play.output.got == [10 * value for value in range(1, play.case.values + 1)], seen
            assert isinstance(end, InputError) if play.case.fails else end is True, seen
        else:
            assert len(play.output.got) >= play.case.takes, seen
            assert isinstance(end, OutputError) if play.case.fails else end is True, seen
        assert all(borrower.closed for borrower in play.borrowers), seen
        assert play.input.ended or play.input.asked == 0 or play.input.stopped, seen
        assert play.runtime.left == 0, seen


@pytest.mark.seeds(30, together=30)
def test_the_same_seed_plays_the_same(seeds: range) -> None:
    for seed in seeds:
        first, second = ByChance(seed), ByChance(seed)
        first.play()
        second.play()
        assert first.trace == second.trace
        assert first.output.got == second.output.got


def test_seeds_play_all_four_cases_with_borrowers_that_fail() -> None:
    plays = [ByChance(seed) for seed in range(40)]
    for play in plays:
        play.play()
    assert {(play.case.input_ends, play.case.fails) for play in plays} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert sum(len(play.borrowers) for play in plays) > 100
