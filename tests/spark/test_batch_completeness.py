"""Every operator and every aggregate function has a form in batch mode."""

import importlib
import pkgutil

import pytest

import penstock.flow.operators as operators
from penstock.flow import aggregates
from penstock.flow.aggregates import Aggregation
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.graph.node import Operator
from penstock.spark import batch  # noqa: F401 - registers the operators
from penstock.spark.batch_aggregates import measure
from penstock.spark.batch_operators import lower
from tests.operators.test_completeness import REFUSED_ON_SPARK

for found in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
    importlib.import_module(found.name)


def classes_of(base: type, package: str) -> list[type]:
    """Subclasses as their modules name them: a dataclass with slots is made twice, the first for nobody."""
    below = [cls for sub in base.__subclasses__() for cls in (sub, *classes_of(sub, package))]
    found = [cls for cls in dict.fromkeys(below) if cls.__module__.startswith(package)]
    return [cls for cls in found if getattr(importlib.import_module(cls.__module__), cls.__name__) is cls]


# A feedback stands in a loop always, and loops run in the in-process engine. Signals do not run there at all:
# tests/signals/test_among_streams.py has them.
ELSEWHERE = (BagFeedback, Feedback, SignalOperator, ValueRows)
OPERATORS = [
    cls
    for cls in classes_of(Operator, operators.__name__)
    if not issubclass(cls, ELSEWHERE) and cls not in REFUSED_ON_SPARK
]
AGGREGATIONS = classes_of(Aggregation, aggregates.__name__)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda cls: cls.__name__)
def test_every_operator_is_lowered(operator: type[Operator]) -> None:
    assert lower.dispatch(operator) is not lower.dispatch(object)


@pytest.mark.parametrize("aggregation", AGGREGATIONS, ids=lambda cls: cls.__name__)
def test_every_aggregate_function_is_measured(aggregation: type[Aggregation]) -> None:
    assert measure.dispatch(aggregation) is not measure.dispatch(object)
