"""Runtime of histories: all records of a key in the order of their sequences, and the versions they make."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from headrace.engine.upserts import MisfitTexts, Tied, TieRule, known_row, shown_row, without_sequence
from headrace.state.codec import Erasable

Moment: TypeAlias = tuple[Any, ...]
"""A sequence, and the parts of a `Tied` that its key has of it; without the digests if there are none."""

Version: TypeAlias = tuple[Any, ...]
"""The columns of a row, and the sequences from which on and up to which it is shown."""

_FAR = 5
"""From so many moments apart on, changes are looked at one by one. No moment may be next to two that are."""

Tracked: TypeAlias = Callable[[Any], Any]
"""What of a row starts a version when it changes."""


class KeyHistory:
    """The records of a key, within a tick.

    stored: its moments in order, None if there is none. shown: the row that a misfit contradicts, if no
    deletion of its sequence hides it.

    Each moment is decided by the rule that `Sequenced` follows for the last one, so the row that is shown
    after all of them is the one that an upsert holds.
    """

    __slots__ = ("_touched", "moments", "shown", "stored")

    def __init__(self, stored: Sequence[Moment] | None) -> None:
        self.stored: Sequence[Moment] = stored or ()
        self.moments = list(self.stored)
        self.shown: Any = None
        # The sequences of the moments that have changed.
        self._touched: set[Any] = set()

    @property
    def has_changed(self) -> bool:
        """Whether records of this tick said something new."""
        return bool(self._touched)

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
                self.shown = shown_row(rule.settled(before, lambda: self._before(at, rule)))
                return texts.of_sequence(sequence, row, before[0])
            after = rule.added(before, row, image)
            if after == before:
                return None
            moments[at] = _moment(sequence, after)
        self._touched.add(sequence)
        return None

    def changes(self, rule: TieRule, tracked: Tracked) -> list[tuple[Version, int]]:
        """Return the changes of the versions in this tick, retractions first."""
        before: dict[Any, Version] = {}
        after: dict[Any, Version] = {}
        stretches = self._stretches()
        if rule.may_delete and not rule.commits:
            # All before the first version is made, which may end with a moment of the next stretch.
            stretches = [(low, self._settle(low, high, rule)) for low, high in stretches]
        for low, high in stretches:
            # The moment to the left is the same before and after.
            left = self.moments[max(bisect_left(self.moments, (low,)) - 1, 0)][0]
            before |= _versions(self.stored, left, high, tracked)
            after |= _versions(self.moments, left, high, tracked)
        gone = [(version, -1) for start, version in before.items() if after.get(start) != version]
        return gone + [(version, 1) for start, version in after.items() if before.get(start) != version]

    def _stretches(self) -> list[tuple[Any, Any]]:
        """Return the first and the last sequence of each stretch of moments in which some have changed."""
        found: list[tuple[Any, Any]] = []
        last = -_FAR
        for sequence in sorted(self._touched):
            at = bisect_left(self.moments, (sequence,), max(last, 0))
            if at - last < _FAR:
                found[-1] = found[-1][0], sequence
            else:
                found.append((sequence, sequence))
            last = at
        return found

    def _settle(self, low: Any, high: Any, rule: TieRule) -> Any:
        """Decide the moments that have changed, and the next one whose row could be the same as theirs.

        Return the sequence of the last of them.
        """
        moments = self.moments
        for at in range(bisect_left(moments, (low,)), len(moments)):
            moment = moments[at]
            sequence, is_plain = moment[0], len(moment) == 2
            if not is_plain:
                settled = rule.settled(_tied(moment), lambda at=at: self._before(at, rule))
                moments[at] = _moment(sequence, settled)
            if sequence > high and has_row(moment):
                return high if is_plain else sequence
        return high

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
    """Return the versions that moments between two sequences belong to, and the one after, by their start."""
    end = bisect_left(moments, (high,))
    if end < len(moments) and moments[end][0] == high:
        end += 1
    first = at = bisect_left(moments, (low,))
    found: dict[Any, Version] = {}
    size = len(moments)
    while at < size and at <= end:
        start, row = moments[at][:2]
        if at == first:
            start = _start_of_version(moments, at, tracked)
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


def _start_of_version(moments: Sequence[Moment], at: int, tracked: Tracked) -> Any:
    """Return the sequence of the first moment of the version that a moment belongs to."""
    row = moments[at][1]
    if row is not None and row.__class__ is not Erasable:
        what = tracked(row)
        while at:
            row = moments[at - 1][1]
            if row is None or row.__class__ is Erasable or tracked(row) != what:
                break
            at -= 1
    return moments[at][0]


RUNTIME: dict[str, Any] = {"x_key_history": KeyHistory}
