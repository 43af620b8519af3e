"""Every aggregate function has a native form in batch mode."""

import importlib

import pytest

import headrace.operators.aggregate.aggregate  # noqa: F401 imports all aggregates
from headrace.operators.aggregate.aggregation import Aggregation, measure


def classes_of(base: type, package: str) -> list[type]:
    """Subclasses as their modules name them: a dataclass with slots is made twice, the first for nobody."""
    below = [cls for sub in base.__subclasses__() for cls in (sub, *classes_of(sub, package))]
    found = [cls for cls in dict.fromkeys(below) if cls.__module__.startswith(package)]
    return [cls for cls in found if getattr(importlib.import_module(cls.__module__), cls.__name__) is cls]


@pytest.mark.parametrize(
    "aggregation",
    # Bases that several share are not measured themselves.
    [
        cls
        for cls in classes_of(Aggregation, "headrace.operators.aggregate")
        if not cls.__name__.startswith(("_", "ValueAggregation"))
    ],
    ids=lambda cls: cls.__name__,
)
def test_every_aggregate_function_is_measured(aggregation: type[Aggregation]) -> None:
    assert measure.dispatch(aggregation) is not measure.dispatch(object)
