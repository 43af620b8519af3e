"""Sources as pull-streams: each value is the batch of a tick, with the positions after it.

A reader notes positions when it reads; but they belong to the tick that takes the
batch. So it is given `Ahead` for its positions, which keeps them until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from penstock.io.close_once import Once
from penstock.io.source import Batch, Reader
from penstock.pull import Source
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End


class Ahead(MutableMapping[Any, Any]):
    """Positions of a batch that no tick has taken yet, over those that are kept. Nobody iterates it."""

    def __init__(self, kept: MutableMapping[Any, Any]) -> None:
        self._kept = kept
        self._new: dict[Any, Any] = {}

    def split_off(self) -> Mapping[Any, Any]:
        """What was noted since the last call: to be kept when a tick takes the batch."""
        new, self._new = self._new, {}
        return new

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._new.get(key)
        if found is None:
            found = self._kept.get(key)
        return default if found is None else found

    def __getitem__(self, key: Any) -> Any:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._new[key] = value

    def __delitem__(self, key: Any) -> None:
        raise NotImplementedError("positions are not taken back")

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("positions are not iterated")

    def __len__(self) -> int:
        raise NotImplementedError("positions are not counted")


def batches_of(
    name: str, reader: Reader, limit: int | None, close: Once, ahead: Ahead | None = None
) -> Source:
    """What a reader reads, `limit` rows (None: all there are) for each ask; for one run.

    close: closes the reader. ahead: where it notes its positions, if they are to come with the batches.

    Reads when it is asked, and not before. Where there is nothing now, the answer comes when there
    is. It is done when the reader is; a stop, too, closes the reader before it is confirmed.
    """
    return Source.of(name, lambda module: Reading(module, reader, limit, close, ahead).read, linear=True)


class Reading:
    """One run of such a source."""

    def __init__(
        self, module: Module, reader: Reader, limit: int | None, close: Once, ahead: Ahead | None
    ) -> None:
        self._module = module
        self._reader = reader
        self._limit = limit
        self._close = close
        self._ahead = ahead
        module.hold(close)

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._look(answer)
            return
        self._close()
        answer(abort)

    def _look(self, answer: AnswerTo) -> None:
        reader = self._reader
        batch = None if reader.done else reader.read(self._limit)
        if batch is not None:
            if self._ahead is not None:
                batch = Batch(batch.rows, batch.bad, self._ahead.split_off())
            answer(None, batch)
        elif reader.done:
            self._close()
            answer(True)
        else:
            self._module.later(reader.look_again, self._look, answer)
