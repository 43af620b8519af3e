"""Runtime of histories: all records of a key in the order of their sequences, and the versions they make."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.engine.upserts import MisfitTexts, Tied, TieRule, known_row, without_sequence
from penstock.state.codec import Erasable

Moment: TypeAlias = tuple[Any, ...]
"""A sequence, and the parts of a `Tied` that its key has of it; without the digests if there are none."""

Version: TypeAlias = tuple[Any, ...]
"""The columns of a row, and the sequences from which on and up to which it is shown."""

Tracked: TypeAlias = Callable[[Any], Any]
"""What of a row starts a version when it changes."""


class KeyHistory:
    """The records of a key, within a tick.

    stored: its moments in order, None if there is none. shown: the row that a misfit contradicts.

    Each moment is decided by the rule that `Sequenced` follows for the last one, so the row that is shown
    after all of them is the one that an upsert holds.
    """

    __slots__ = ("_high", "_low", "moments", "shown", "stored")

    def __init__(self, stored: Sequence[Moment] | None) -> None:
        self.stored: Sequence[Moment] = stored or ()
        self.moments = list(self.stored)
        self.shown: Any = None
        # The sequences from which on and up to which moments have changed.
        self._low: Any = None
        self._high: Any = None

    @property
    def has_changed(self) -> bool:
        """Whether records of this tick said something new."""
        return self._low is not None

    def apply(
        self, row: Any, sequence: Any, image: Any, place: Any, rule: TieRule, texts: MisfitTexts
    ) -> str | None:
        """Apply a record; return the reason if one of its sequence has another row (see `Sequenced`)."""
        if sequence is None:
            raise without_sequence()
        moments = self.moments
        # A tuple is above the one that it starts with.
        at = bisect_left(moments, (sequence,))
        if at == len(moments) or moments[at][0] != sequence:
            first: Tied = rule.of_deletion(image) if row is None else (row, (), ())
            moments.insert(at, _moment(sequence, first))
        else:
            before = _tied(moments[at])
            if row is not None and before[0] is not None and row != before[0] and not rule.trust:
                self.shown = before[0]
                return texts.of_sequence(sequence, row, before[0])
            after = rule.added(before, row, image)
            if after == before:
                return None
            moments[at] = _moment(sequence, after)
        if self._low is None or sequence < self._low:
            self._low = sequence
        if self._high is None or sequence > self._high:
            self._high = sequence
        return None

    def changes(self, rule: TieRule, tracked: Tracked) -> list[tuple[Version, int]]:
        """Return the changes of the versions in this tick, retractions first."""
        if self._low is None:
            return []
        if rule.may_delete and not rule.commits:
            self._settle(rule)
        before = _versions(self.stored, self._low, self._high, tracked)
        after = _versions(self.moments, self._low, self._high, tracked)
        gone = [(version, -1) for start, version in before.items() if after.get(start) != version]
        return gone + [(version, 1) for start, version in after.items() if before.get(start) != version]

    def _settle(self, rule: TieRule) -> None:
        """Decide the moments that have changed, and the next one whose row could be the same as theirs."""
        moments = self.moments
        for at in range(bisect_left(moments, (self._low,)), len(moments)):
            moment = moments[at]
            sequence, is_plain = moment[0], len(moment) == 2
            if not is_plain:
                settled = rule.settled(_tied(moment), lambda at=at: self._before(at, rule))
                moments[at] = _moment(sequence, settled)
            if sequence > self._high and has_row(moment):
                if not is_plain:
                    self._high = sequence
                return

    def _before(self, at: int, rule: TieRule) -> tuple[bytes, ...]:
        """Return the digests of the rows of the next older sequence that has some."""
        while at:
            at -= 1
            if has_row(self.moments[at]):
                row, rows, _ = _tied(self.moments[at])
                return rows or (rule.digest(row),)
        return ()


def has_row(moment: Moment) -> bool:
    """Return whether a record set a row at a moment, also if a deletion won, and if it is erased."""
    return moment[1] is not None or (len(moment) > 2 and bool(moment[2]))


def _moment(sequence: Any, tied: Tied) -> Moment:
    return (sequence, *tied) if tied[1] or tied[2] else (sequence, tied[0])


def _tied(moment: Moment) -> Tied:
    if len(moment) == 2:
        return known_row(moment[1]), (), ()
    return known_row(moment[1]), moment[2], moment[3]


def _versions(moments: Sequence[Moment], low: Any, high: Any, tracked: Tracked) -> dict[Any, Version]:
    """Return the versions that moments between two sequences belong to, and those beside, by their start."""
    end = bisect_left(moments, (high,))
    if end < len(moments) and moments[end][0] == high:
        end += 1
    at = _first_of_version(moments, bisect_left(moments, (low,)) - 1, tracked)
    found: dict[Any, Version] = {}
    size = len(moments)
    while at < size and at <= end:
        start, row = moments[at][:2]
        at += 1
        if row is None or row.__class__ is Erasable:
            continue
        what = tracked(row)
        while at < size:
            following = moments[at][1]
            if following is None or following.__class__ is Erasable or tracked(following) != what:
                break
            # Records that change nothing tracked belong to one version, which shows the last.
            row = following
            at += 1
        found[start] = (*row, start, moments[at][0] if at < size else None)
    return found


def _first_of_version(moments: Sequence[Moment], at: int, tracked: Tracked) -> int:
    """Return the place of the first moment of the version that a moment belongs to."""
    if at < 0:
        return 0
    row = moments[at][1]
    if row is None or row.__class__ is Erasable:
        return at
    what = tracked(row)
    while at:
        row = moments[at - 1][1]
        if row is None or row.__class__ is Erasable or tracked(row) != what:
            break
        at -= 1
    return at


RUNTIME: dict[str, Any] = {"x_key_history": KeyHistory}
