"""Requests for one replica only: what is said when it is not there."""

from __future__ import annotations

from penstock.compute.errors import TargetReplicaLost
from penstock.compute.problems import problem_of
from penstock.compute.protocol.responses import Problem


def target_lost(replica: str) -> TargetReplicaLost:
    return TargetReplicaLost(
        f"replica {replica!r} is not connected",
        why="It alone was asked for; it failed, was dropped, or is not there yet.",
        fix="ask without naming a replica, or again later",
        replica=replica,
    )


def lost_target(replica: str) -> Problem:
    """The same, as an answer."""
    return problem_of(target_lost(replica))
