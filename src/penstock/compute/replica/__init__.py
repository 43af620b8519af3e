"""Replica: the disposable process that maintains views."""

from penstock.compute.replica.replica import Replica
from penstock.compute.replica.runtime_factory import make_runtime

__all__ = ["Replica", "make_runtime"]
