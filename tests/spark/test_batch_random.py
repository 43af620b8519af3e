"""Random flows of all operators as one native batch, against the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from penstock.errors import PenstockError
from penstock.testing.strategies import Case, cases
from tests.spark.batch_rows_of import batch_bags, true_bags

pytestmark = pytest.mark.spark


@settings(max_examples=30)
@given(case=cases(deferred=True))
def test_a_batch_answers_what_the_flow_means(spark, case: Case) -> None:
    try:
        expected = true_bags(case.flow, case.inputs)
    except PenstockError as error:
        with pytest.raises(type(error)):
            batch_bags(spark, case.flow, case.inputs)
        return
    assert batch_bags(spark, case.flow, case.inputs) == expected
