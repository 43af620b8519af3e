"""Every aggregate function has a native form in batch mode."""

import importlib

import pytest

from headrace.flow import aggregates, moment_aggregates, value_aggregates
from headrace.operators.aggregates import Aggregation
from headrace.spark.batch.aggregates import measure


def classes_of(base: type, package: str) -> list[type]:
    """Subclasses as their modules name them: a dataclass with slots is made twice, the first for nobody."""
    below = [cls for sub in base.__subclasses__() for cls in (sub, *classes_of(sub, package))]
    found = [cls for cls in dict.fromkeys(below) if cls.__module__.startswith(package)]
    return [cls for cls in found if getattr(importlib.import_module(cls.__module__), cls.__name__) is cls]


@pytest.mark.parametrize(
    "aggregation",
    # A base that several share is private to its module.
    [
        cls
        for module in (aggregates, moment_aggregates, value_aggregates)
        for cls in classes_of(Aggregation, module.__name__)
        if not cls.__name__.startswith("_")
    ],
    ids=lambda cls: cls.__name__,
)
def test_every_aggregate_function_is_measured(aggregation: type[Aggregation]) -> None:
    assert measure.dispatch(aggregation) is not measure.dispatch(object)
