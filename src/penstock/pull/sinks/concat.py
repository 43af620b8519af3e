"""concat: all values as one text, or as one string of bytes."""

from __future__ import annotations

from typing import Any, AnyStr

from penstock.pull.module import Module
from penstock.pull.outside.octets import octets
from penstock.pull.pieces import Sink
from penstock.pull.sinks.whole import Taking, whole


def concat(empty: AnyStr = "", *, batch: int = 1) -> Sink:
    """All values in one text; what is no text is written as `str` does. Of an empty stream it is "".

    empty: `concat(b"")` joins bytes, and takes nothing else (`WrongValue`). Where the stream fails,
           `Run.partial` holds what came before.
    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values(["a", 1, "b"]), concat()).run()
    'a1b'
    >>> pull(values([b"a", b"b"]), concat(b"")).run()
    b'ab'
    """

    def begin(module: Module) -> Taking:
        found: list[Any] = []

        def take(values: list[Any]) -> None:
            if isinstance(empty, bytes):
                found.extend(octets(module, value) for value in values)
            else:
                found.extend(str(value) for value in values)

        return take, lambda: empty.join(found)

    return whole("concat", begin, batch=batch)
