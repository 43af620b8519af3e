"""Plans taken apart, changed and put together again by hand."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.compute.errors import BadPlan, ComputeError, MessageTooLarge
from headrace.compute.plans import decode, encode
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.protocol.commands import PlanBytes
from headrace.flow.flow import Flow

RAN: list[object] = []


def plan_of(body: pb.Body) -> PlanBytes:
    return PlanBytes(body.SerializeToString(deterministic=True))


def parsed(flow: Flow) -> pb.Body:
    return pb.Body.FromString(encode(flow).body)


def refused(body: pb.Body) -> ComputeError:
    with pytest.raises((BadPlan, MessageTooLarge)) as error:
        decode(plan_of(body))
    assert not RAN
    return error.value


def doubled() -> pb.Body:
    """numbers -> filter -> select -> sink"""
    flow = hr.Flow("doubled")
    numbers = flow.table("numbers", int).filter(col.value > 1)
    flow.sink("out", numbers.select(twice=col.value * 2))
    return parsed(flow)


def terms(body: pb.Body) -> Any:
    """The terms of the condition of `doubled`."""
    return body.nodes[1].operator.members[0].value.expr.terms
