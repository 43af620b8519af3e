"""flat_map: several values for each value, or a stream of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.synchronous import synchronous
from penstock.pull.transformers.flatten import open_flat


def flat_map(function: Callable[[Any], Any], *, width: int = 0) -> Transformer:
    """What `function(value)` contains, for each value, one after the other.

    The function returns a collection, a generator, or a `Source`; all that is said of `flatten` holds. It is
    called when all that the values before gave is used up. What it raises fails the source with it;
    when that has confirmed, downstream gets it.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values(["a b", "", "c"]), flat_map(str.split), collect()).run()
    ['a', 'b', 'c']
    """
    whole("flat_map", "width", width, least=0)
    fix = "async_map(function), then flatten(); iterate(generator) is a source of an asynchronous generator"
    checked = synchronous("flat_map", function, fix=fix).calling(function)
    return Transformer.of(
        "flat_map", lambda module, edge: open_flat(module, edge, checked), batches=True, width=width
    )
