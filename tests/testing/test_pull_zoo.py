"""Broken modules: each must be caught, with the name of the rule that it breaks."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import PullSource, PullTransformer
from headrace.testing import ModuleFailed, check_sink, check_source, check_transformer
from tests.testing.pull_zoo.broken import ZOO, Broken
from tests.testing.pull_zoo.sinks import asking, rightly
from tests.testing.pull_zoo.sources import Counting, counting
from tests.testing.pull_zoo.transformers import passing


def test_a_source_that_is_right_passes() -> None:
    assert check_source(lambda: counting(Counting), expected=[1, 2, 3]) == 283


def test_a_transformer_that_is_right_passes() -> None:
    assert check_transformer(passing, expected=list) == 1196


def test_a_sink_that_is_right_passes() -> None:
    assert check_sink(lambda: asking(rightly), result=list, partial=list) == 260


def check(make: Broken, **options: Any) -> int:
    """The check for its kind of module."""
    piece = make()
    if isinstance(piece, PullSource):
        return check_source(make, expected=[1, 2, 3], **options)
    if isinstance(piece, PullTransformer):
        return check_transformer(make, expected=list, **options)
    return check_sink(make, result=list, partial=list, **options)


@pytest.mark.parametrize(("make", "rule"), ZOO)
def test_a_broken_module_is_caught_by_its_rule(make: Broken, rule: str) -> None:
    with pytest.raises(ModuleFailed) as caught:
        check(make)
    assert caught.value.rule == rule


@pytest.mark.parametrize(("make", "rule"), ZOO)
def test_a_failure_in_a_random_order_is_seen_again_with_its_seed(make: Broken, rule: str) -> None:
    for seed in range(2000):
        try:
            check(make, seed=seed)
        except ModuleFailed as failure:
            first = failure
            break
    else:
        pytest.fail("no order shows it")
    assert f"again with seed={first.seed}" in str(first)
    with pytest.raises(ModuleFailed) as again:
        check(make, seed=first.seed)
    assert str(again.value) == str(first)
