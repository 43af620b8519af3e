"""Portable plans: flows as data, readable by any process and never executed as code.

`encode` converts a flow to a plan, `decode` a plan to a flow; both make all the checks that building a flow
makes. `check_servable` refuses flows whose results are not a function of the input rows at a time.
"""

from headrace.compute.plans.conversion import (
    decode,
    decode_expr,
    encode,
    encode_expr,
    predicate_of,
    schema_from_bytes,
    schema_to_bytes,
)
from headrace.compute.plans.registry import LIMITS, PlanLimits
from headrace.compute.plans.servable import (
    INPUT,
    OUTPUT,
    FlowSink,
    FlowSource,
    check_servable,
    identity_flow,
    sinks_of,
    sources_of,
)

__all__ = [
    "INPUT",
    "LIMITS",
    "OUTPUT",
    "FlowSink",
    "FlowSource",
    "PlanLimits",
    "check_servable",
    "decode",
    "decode_expr",
    "encode",
    "encode_expr",
    "identity_flow",
    "predicate_of",
    "schema_from_bytes",
    "schema_to_bytes",
    "sinks_of",
    "sources_of",
]
