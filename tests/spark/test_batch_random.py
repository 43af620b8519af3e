"""Random flows of all operators as one batch on Spark, against the oracle and the engine."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings

from headrace.errors import HeadraceError
from tests.random_flows.cases import Case, cases
from tests.spark.batch_rows_of import NeverQuiet, bags_in_one_tick, batch_bags, true_bags

pytestmark = [pytest.mark.spark, pytest.mark.verify]


@settings(max_examples=30)
@given(case=cases(deferred=True, folds=True))
def test_a_batch_answers_what_the_flow_means(spark, case: Case) -> None:
    try:
        expected = true_bags(case.flow, case.inputs)
    except HeadraceError as error:
        with pytest.raises(type(error)):
            batch_bags(spark, case.flow, case.inputs)
        return
    assert batch_bags(spark, case.flow, case.inputs) == expected


# How random flows are divided is shown without Spark, in test_batch_division.
@settings(max_examples=12)
@given(case=cases(order=True, ticks=True))
def test_a_batch_answers_as_one_tick_of_the_engine(spark, case: Case) -> None:
    try:
        expected = bags_in_one_tick(case.flow, case.inputs)
    except NeverQuiet:
        reject()
    except HeadraceError as error:
        with pytest.raises(type(error)):
            batch_bags(spark, case.flow, case.inputs)
        return
    assert batch_bags(spark, case.flow, case.inputs) == expected
