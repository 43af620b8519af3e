"""A subscription that several replicas answer: what of a batch has not been delivered.

Replicas are deterministic, so whoever comes first with a time is right about it, and the others say the
same. Delivered batches cover all times once.
Source: the compute protocol of Materialize, subscriptions under active replication (reference).
"""

from __future__ import annotations

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.responses import Batch, Problem


def undelivered(tracked: Frontier, batch: Batch) -> Batch | None:
    """The part of a batch from `tracked` on, up to which all has been delivered; None where it has nothing.

    The next `tracked` is the upper of what is returned.

    >>> batch = Batch(Frontier(0), Frontier(7), ((("a",), 3, 1), (("b",), 6, 1)))
    >>> undelivered(Frontier(5), batch)
    Batch(lower=Frontier(time=5), upper=Frontier(time=7), updates=((('b',), 6, 1),))
    """
    if batch.upper <= tracked:
        return None
    updates = batch.updates
    if not isinstance(updates, Problem):
        updates = tuple(update for update in updates if not tracked.passed(update[1]))
    return Batch(tracked, batch.upper, updates)
