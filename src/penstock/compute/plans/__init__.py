"""Portable plans: flows as data, readable by any process and never executed as code.

`encode` makes the plan of a flow, `decode` a flow of a plan; both check all that building a
flow checks. `servable` refuses flows whose answers are no function of the rows at a time.
"""

from penstock.compute.plans.decoding import decode
from penstock.compute.plans.encoding import encode
from penstock.compute.plans.expressions import (
    decode_expr,
    encode_expr,
    predicate_of,
    schema_from_bytes,
    schema_to_bytes,
)
from penstock.compute.plans.flow_endpoints import (
    INPUT,
    OUTPUT,
    FlowSink,
    FlowSource,
    identity_flow,
    sinks_of,
    sources_of,
)
from penstock.compute.plans.limits import LIMITS, PlanLimits
from penstock.compute.plans.servable import servable

__all__ = [
    "INPUT",
    "LIMITS",
    "OUTPUT",
    "FlowSink",
    "FlowSource",
    "PlanLimits",
    "decode",
    "decode_expr",
    "encode",
    "encode_expr",
    "identity_flow",
    "predicate_of",
    "schema_from_bytes",
    "schema_to_bytes",
    "servable",
    "sinks_of",
    "sources_of",
]
