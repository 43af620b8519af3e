"""Replica: the disposable process that maintains views."""

from headrace.compute.replica.replica import Replica
from headrace.compute.replica.runtime_factory import make_runtime

__all__ = ["Replica", "make_runtime"]
