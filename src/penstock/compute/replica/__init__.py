"""A replica: the process that keeps views up to date, and may be killed."""

from penstock.compute.replica.making import make_runtime
from penstock.compute.replica.replica import Replica

__all__ = ["Replica", "make_runtime"]
