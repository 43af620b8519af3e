"""A replica: the process that keeps views up to date, and may be killed."""

from penstock.compute.replica.replica import Replica
from penstock.compute.replica.runtime_factory import make_runtime

__all__ = ["Replica", "make_runtime"]
