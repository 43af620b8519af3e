"""Coroutine functions where functions are called: they are awaited, or refused by name. None is dropped."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from headrace import pull as callback
from headrace.pull import dataflow
from headrace.pull.edge import PullEdge
from headrace.pull.errors import NotAModule, NotAwaited
from headrace.pull.module_context import Module
from headrace.testing.pull import VirtualRuntime

Use = Callable[[Any], Callable[[], Any]]
"""Gives a function to a piece; calling what comes out has the piece call the function."""


def _through(form: Any, name: str, **options: Any) -> Use:
    def use(function: Any) -> Callable[[], Any]:
        transformer = getattr(form, name)(function, **options)
        return lambda: form.pull(form.values([1, 2]), transformer, form.collect()).run()

    return use


def _sink(form: Any, name: str, *more: Any) -> Use:
    def use(function: Any) -> Callable[[], Any]:
        sink = getattr(form, name)(function, *more)
        return lambda: form.pull(form.values([1, 2]), sink).run()

    return use


def _source(make: Callable[[Any], Any]) -> Use:
    def use(function: Any) -> Callable[[], Any]:
        source = make(function)
        return lambda: callback.pull(source, callback.take(2), callback.collect()).run()

    return use


def _failing(function: Any) -> Callable[[], Any]:
    handled = callback.catch(function)
    return lambda: callback.pull(callback.error(ValueError()), handled, callback.collect()).run()


def _forked(function: Any) -> Callable[[], Any]:
    one, two = callback.fork(callback.values([1]), function)
    both = callback.together(callback.pull(one, callback.collect()), callback.pull(two, callback.collect()))
    return lambda: both.run()


def _closed(function: Any) -> Callable[[], Any]:
    source = callback.pushable(on_close=function)
    source.end()
    return lambda: callback.pull(source, callback.collect()).run()


def _heard(function: Any) -> Callable[[], Any]:
    listening = callback.listen(ready=function)
    return lambda: callback.pull(listening, callback.collect()).run()


REFUSED: dict[str, Use] = {
    "values(on_stop)": _source(lambda f: callback.values([1, 2, 3], on_stop=f)),
    "pushable(on_close)": _closed,
    "sorted_merge(key)": _source(lambda f: callback.sorted_merge(callback.values([1, 2]), key=f)),
    "fork(classify)": _forked,
    "catch(handler)": _failing,
    "listen(ready)": _heard,
    "source(read)": _source(callback.source),
    **{
        f"{name}({parameter})": _through(callback, name)
        for name, parameter in [
            ("filter", "test"),
            ("filter_not", "test"),
            ("skip_while", "test"),
            ("take_while", "test"),
            ("unique", "key"),
            ("non_unique", "key"),
            ("tap", "on_value"),
            ("through", "on_value"),
            ("abortable", "on_end"),
            ("flat_map", "function"),
            ("transformer", "connect"),
        ]
    },
    "through(on_end)": lambda f: _through(callback, "through", on_end=f)(None),
    **{
        f"{name}({parameter})": _sink(callback, name)
        for name, parameter in [
            ("drain", "function"),
            ("find", "test"),
            ("reduce", "function"),
            ("on_end", "function"),
            ("sink", "connect"),
        ]
    },
    "log(to)": lambda f: _sink(callback, "log")("in") if f is None else partial(_logged, callback.log(to=f)),
    "dataflow.filter(keep)": _through(dataflow, "filter"),
    "dataflow.unique(key)": _through(dataflow, "unique"),
    "dataflow.drain(each)": _sink(dataflow, "drain"),
    "dataflow.find(wanted)": _sink(dataflow, "find"),
    "dataflow.reduce(function)": _sink(dataflow, "reduce", 0),
}
"""Called and not awaited: what returns a coroutine is refused, too, when it has done so."""


def _logged(sink: callback.PullSink) -> Any:
    return callback.pull(callback.values([1, 2]), sink).run()


PASSES_ON: dict[str, Use] = {
    "map(function)": _through(callback, "map"),
    "sliding(reduce)": lambda f: _through(callback, "sliding", reduce=f)(1),
    "paramap(function)": _through(callback, "paramap", width=1),
    "infinite(make)": _source(callback.infinite),
    "dataflow.map(function)": _through(dataflow, "map"),
    "dataflow.infinite(make)": lambda f: partial(
        lambda source: dataflow.pull(source, dataflow.take(2), dataflow.collect()).run(), dataflow.infinite(f)
    ),
}
"""Their results are values of the stream, coroutines too. A coroutine function is refused all the same."""

AWAITED: dict[str, Use] = {
    "async_map(function)": _through(callback, "async_map"),
    "for_each(function)": _sink(callback, "for_each"),
    "lend(borrowers)": _through(callback, "lend"),
    "dataflow.async_map(function)": _through(dataflow, "async_map"),
    "dataflow.for_each(function)": _sink(dataflow, "for_each"),
}

AT_ONCE: dict[str, Callable[[Any], Any]] = {
    "reconnect(make)": callback.reconnect,
    "reconnect(wait)": lambda f: callback.reconnect(lambda: callback.values([1]), wait=f),
    "reconnect(position)": lambda f: callback.reconnect(lambda _at: callback.values([1]), position=f),
    "back_off(jitter)": lambda f: callback.back_off(jitter=f),
    "PullSource.of(open)": lambda f: callback.PullSource.of("odd", f),
    "PullTransformer.of(open)": lambda f: callback.PullTransformer.of("odd", f),
    "PullSink.of(open)": lambda f: callback.PullSink.of("odd", f),
    "Run.when_finished(listener)": lambda f: (
        callback.pull(callback.values(), callback.drain()).start().when_finished(f)
    ),
}
"""Refused when they are given; what is made of their results shows a coroutine by itself."""

ELSEWHERE = {
    "Lender.lend(borrower)",  # as lend
    "Run.shared(make)",  # of modules, between each other
    "PullTransformer.of_kernel(kernel)",  # must return a function that is called with values
    "dataflow.ModuleContext.begin(thread)",  # coroutine functions: dataflow threads
    "dataflow.DataflowSource.of(thread)",
    "dataflow.DataflowTransformer.of(thread)",
    "dataflow.DataflowSink.of(thread)",
    "dataflow.working(work)",
    "dataflow.ModuleContext.thread(coroutine)",
    "dataflow.ModuleContext.task(coroutine)",
    "dataflow.ModuleContext.when(then)",  # below
    "dataflow.DataflowVariable.when_bound(then)",
    "dataflow.DataflowVariable.when_bound(failed)",
}


def parameters_for_functions() -> Iterator[str]:
    """All that the two packages offer to be given functions, as `piece(parameter)`."""
    words = ("Callable", "Read", "OnEnd", "OnClose", "Wait", "Borrows", "Key", "Coroutine")
    for prefix, form in (("", callback), ("dataflow.", dataflow)):
        for name in form.__all__:
            for called, function in _functions(name, getattr(form, name)):
                for parameter in inspect.signature(function).parameters.values():
                    annotation = str(parameter.annotation)
                    if any(word in annotation for word in words) and "Reader" not in annotation:
                        yield f"{prefix}{called}({parameter.name})"


def _functions(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(found):
        yield name, found
    elif inspect.isclass(found):
        for member, each in vars(found).items():
            each = each.__func__ if isinstance(each, classmethod) else each
            if inspect.isfunction(each) and not member.startswith("_"):
                yield f"{name}.{member}", each


def test_every_piece_that_is_given_a_function_is_here() -> None:
    here = {*REFUSED, *PASSES_ON, *AWAITED, *AT_ONCE, *ELSEWHERE}
    assert here == set(parameters_for_functions())


@pytest.fixture(autouse=True)
def _nothing_is_left_unawaited() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    assert [str(warning.message) for warning in warned if "never awaited" in str(warning.message)] == []


class Asynchronous:
    """An object that is called like a coroutine function."""

    async def __call__(self, *_of: Any) -> bool:
        return True

    async def method(self, *_of: Any) -> bool:
        return True


async def coroutine(*_of: Any) -> bool:
    return True


FUNCTIONS = [coroutine, partial(coroutine, 7), Asynchronous(), Asynchronous().method, partial(Asynchronous())]


@pytest.mark.parametrize("function", FUNCTIONS, ids=["def", "partial", "object", "method", "of an object"])
@pytest.mark.parametrize("name", [*REFUSED, *PASSES_ON, *AT_ONCE])
def test_a_coroutine_function_is_refused_where_it_is_given(name: str, function: Any) -> None:
    piece = name.removeprefix("dataflow.").partition("(")[0].removeprefix("Run.")
    with pytest.raises(NotAwaited) as raised:
        (REFUSED | PASSES_ON | AT_ONCE)[name](function)
    assert f"{piece}() was given" in str(raised.value)
    assert raised.value.fix
    assert raised.value.where[0].location.file == __file__


@pytest.mark.parametrize("name", REFUSED)
def test_a_coroutine_that_a_function_returns_is_refused_when_it_does(name: str) -> None:
    with pytest.raises(NotAwaited, match="returned a coroutine") as raised:
        REFUSED[name](lambda *of: coroutine(*of))()
    assert raised.value.where[0].location.file == __file__


@pytest.mark.parametrize(
    "name", sorted({*REFUSED} - {"source(read)", "transformer(connect)", "sink(connect)"})
)
def test_functions_that_return_plain_values_are_called_as_ever(name: str) -> None:
    if name != "listen(ready)":  # which would go on listening
        REFUSED[name](lambda *of: of[-1] if name != "fork(classify)" else True)()


async def generated(*_of: Any) -> Any:
    yield 1


@pytest.mark.parametrize("name", [*REFUSED, "for_each(function)", "dataflow.for_each(function)"])
def test_an_asynchronous_generator_is_not_dropped_either(name: str) -> None:
    uses = REFUSED | AWAITED
    if name in REFUSED:
        with pytest.raises(NotAwaited):
            uses[name](generated)
    with pytest.raises(NotAwaited, match="returned an asynchronous generator"):
        uses[name](lambda *of: generated(*of))()


@pytest.mark.parametrize("name", PASSES_ON)
def test_coroutines_may_be_values(name: str) -> None:
    found = PASSES_ON[name](lambda *of: coroutine(*of))()
    assert found
    for each in found:
        assert inspect.iscoroutine(each)
        each.close()


@pytest.mark.parametrize("name", AWAITED)
@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: partial(f), lambda f: lambda value: f(value)])
def test_a_coroutine_function_is_awaited(name: str, wrap: Any) -> None:
    done: list[int] = []

    async def work(value: int) -> int:
        await asyncio.sleep(0)
        done.append(value)
        return value

    AWAITED[name](wrap(work))()
    assert done == [1, 2]


# --- modules of one's own ------------------------------------------------------------------------


def _asks(module: Module, edge: PullEdge, answered: Any) -> None:
    edge(None, answered)


def _closes(module: Module, close: Any) -> None:
    module.closing(close)
    module.done()


OWN: dict[str, Callable[[Any], Any]] = {
    "a read": lambda f: callback.pull(callback.PullSource.of("own", lambda _module: f), callback.collect()),
    "an answer": lambda f: callback.pull(
        callback.values([1]), callback.PullSink.of("own", lambda module, edge: _asks(module, edge, f))
    ),
    "the opening of a sink": lambda f: callback.pull(callback.values([1]), callback.PullSink.of("own", f)),
    "the opening of a source": lambda f: callback.pull(callback.PullSource.of("own", f), callback.collect()),
    "a timer": lambda f: callback.pull(
        callback.values([1]), callback.PullSink.of("own", lambda module, _edge: module.later(1.0, f) and None)
    ),
    "the end of a task": lambda f: callback.pull(
        callback.values([1]),
        callback.PullSink.of("own", lambda module, _edge: module.spawn(asyncio.sleep(1), f) and None),
    ),
    "what closes": lambda f: callback.pull(
        callback.values([1]),
        callback.PullSink.of("own", lambda module, _edge: _closes(module, f)),
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_function_of_a_module_that_returns_a_coroutine_fails_it(name: str) -> None:
    run = OWN[name](lambda *of: coroutine(*of)).start(VirtualRuntime())
    with pytest.raises(NotAwaited, match="'own'"):
        run.wait()


def test_threads_do_things_when_variables_are_bound_and_wait_for_no_coroutine_function() -> None:
    async def thread(module: dataflow.ModuleContext, upstream: dataflow.DataflowEdge) -> None:
        module.when(upstream.ask(), coroutine)

    with pytest.raises(NotAwaited, match="'own'"):
        dataflow.pull(dataflow.values([1]), dataflow.DataflowSink.of("own", thread)).run()
    variable: dataflow.DataflowVariable[int] = dataflow.DataflowVariable()
    variable.when_bound(coroutine)
    with pytest.raises(NotAwaited, match="when_bound"):
        variable.bind(1)
    with pytest.raises(NotAwaited, match="when_bound"):
        variable.when_bound(coroutine)


# --- what opens no module ------------------------------------------------------------------------

DATAFLOW: dict[str, Callable[[Any], Any]] = {
    "source": lambda f: dataflow.pull(dataflow.DataflowSource.of("plain", f), dataflow.collect()),
    "transformer": lambda f: dataflow.pull(
        dataflow.values([1]), dataflow.DataflowTransformer.of("plain", f), dataflow.collect()
    ),
    "sink": lambda f: dataflow.pull(dataflow.values([1]), dataflow.DataflowSink.of("plain", f)),
}


@pytest.mark.parametrize("kind", DATAFLOW)
@pytest.mark.parametrize(
    "function",
    [lambda *_of: None, lambda *_of: 7, lambda *_of: coroutine, generated],
    ids=["nothing", "a value", "a function", "a generator"],
)
def test_a_function_that_is_no_dataflow_thread_is_named(kind: str, function: Any) -> None:
    pipeline = DATAFLOW[kind](function)
    with pytest.raises(NotAModule, match="'plain'") as raised:
        pipeline.run()
    assert raised.value.where[0].location.file == __file__


@pytest.mark.parametrize("kind", DATAFLOW)
def test_a_function_that_raises_before_there_is_a_thread_fails_its_module(kind: str) -> None:
    def function(*_of: Any) -> Any:
        raise ValueError("no thread")

    with pytest.raises(ValueError, match="no thread"):
        DATAFLOW[kind](function).run()


@pytest.mark.parametrize("opened", [None, 7, []])
def test_a_callback_module_that_is_opened_without_a_read_is_named(opened: Any) -> None:
    sources = callback.PullSource.of("plain", lambda _module: opened), callback.values([1])
    transformers = callback.map(str), callback.PullTransformer.of("plain", lambda _module, _edge: opened)
    for source, transformer in zip(sources, transformers, strict=True):
        with pytest.raises(NotAModule, match="'plain'"):
            callback.pull(source, transformer, callback.collect()).run()
