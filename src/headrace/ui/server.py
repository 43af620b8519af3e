"""Server of the page: loopback only, read only, in a thread of its own.

Every request needs the token of the printed URL. The first one exchanges it for a cookie, so that the token
leaves the address bar. The Host header must be a loopback name, which stops DNS rebinding; without CORS
headers, no other site can read an answer. A request that fails is logged and never reaches the run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib import resources
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from headrace.errors import BadInput, HeadraceError
from headrace.requirements import require_package

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send


# --- contract of pages --------------------------------------------------------------


JsonObject: TypeAlias = "dict[str, Any]"


WHY_SECONDS = 40
"""Limit on the time of a question why a row is there: loading and reading take time, too."""


class Page(Protocol):
    """Subject of a page: a run, a checkpoint, a controller or a pipeline.

    The server calls it from its own threads.
    """

    def overview(self) -> JsonObject:
        """Return the constant part: kind, title, picture, plan, sources and sinks."""
        ...

    def flow(self, view: str) -> JsonObject:
        """Return picture, explanation and generated code of the flow that computes a view.

        view: empty for a run's only flow, and for a picture of all views of a controller.
        """
        ...

    def refresh(self) -> None:
        """Process everything since the last call. Called a few times a second."""
        ...

    def version(self) -> int:
        """Return a number that rises with every change of `status`."""
        ...

    def status(self, after: int) -> JsonObject:
        """Return the current status, with the ticks after tick number `after`."""
        ...

    def state(self) -> JsonObject:
        """Return the state's size by operator, or under "why_not" the reason why it is unknown."""
        ...

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        """Return what an operator has stored for a key, given as JSON."""
        ...

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        """Return a page of a view's rows that contain a text."""
        ...

    def dead_letters(self) -> JsonObject:
        """Return the latest rows that were set aside, per source."""
        ...

    def why(self, view: str, row: str) -> JsonObject:
        """Return the source rows that a view's row, as JSON, came from."""
        ...


@runtime_checkable
class RunHistory(Protocol):
    """Page that knows earlier runs, and what they changed."""

    def runs(self, view: str, run: int) -> JsonObject:
        """Return the records of a table, of a run, or (empty and 0) of the last runs."""
        ...

    def changes(self, view: str, run: int, search: str, offset: int) -> JsonObject:
        """Return a page of the rows that a run inserted into a table and deleted from it."""
        ...


class OneAtATime:
    """Runner of provenance queries, one at a time: a search takes seconds of processor time."""

    def __init__(self, find: Callable[[str, str], JsonObject]) -> None:
        self._find = find
        self._lock = Lock()

    def __call__(self, view: str, row: str) -> JsonObject:
        """Return the answer, or the reason for none if another query is running."""
        if not self._lock.acquire(blocking=False):
            return {"why_not": "Another question is being answered. Ask again when it is done."}
        try:
            return self._find(view, row)
        finally:
            self._lock.release()


_LOG = logging.getLogger("headrace.ui")
# A request that is cut off by the end of the run is an error to uvicorn. Without a handler, Python prints its
# stack on the user's terminal. Handlers of the user's program still receive it.
logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())
_LOOPBACK = "127.0.0.1"
_HOSTS = frozenset({_LOOPBACK, "localhost"})
_TOKEN_VARIABLE = "HEADRACE_UI_TOKEN"
_LEAST_TOKEN = 16
_MAX_CONNECTIONS = 64
_MAX_SILENCE = 5.0
"""Seconds until a connection that sends nothing is closed."""
_BETWEEN_LOOKS = 0.25
"""Polling interval in seconds."""
_ALIVE_EVERY = 40
"""Polls without a change after which a comment shows that the connection is alive."""

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    b"content-security-policy": b"default-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


class Closing:
    """Orderly end of the event streams: each sends the last status before connections are closed."""

    def __init__(self) -> None:
        self._ends = threading.Event()
        self._streams = 0
        self._left = threading.Condition()

    @property
    def is_set(self) -> bool:
        return self._ends.is_set()

    @contextmanager
    def stream(self) -> Generator[None]:
        with self._left:
            self._streams += 1
        try:
            yield
        finally:
            with self._left:
                self._streams -= 1
                self._left.notify_all()

    def end_streams(self) -> None:
        """End the streams at their next poll, and wait for them to finish."""
        self._ends.set()
        with self._left:
            self._left.wait_for(lambda: not self._streams, timeout=4 * _BETWEEN_LOOKS)


@contextmanager
def serving_page(page: Page, port: int = 0) -> Generator[str]:
    """Serve a page inside this block; yields its URL with the token, to be printed.

    port: of 127.0.0.1; 0 picks a free one. The token is random, unless HEADRACE_UI_TOKEN gives one: that is
        a lasting secret, and the URL has the name of the variable in its place, as a shell would read it.

    Raises `BadInput` if starlette or uvicorn is missing, the port is taken, or the given token is too short.
    """
    given = os.environ.get(_TOKEN_VARIABLE)
    token = secrets.token_urlsafe(24) if given is None else _checked(given)
    for package in ("starlette", "uvicorn"):
        require_package("the page", package, "ui")
    import uvicorn

    listener = _listen(port)
    port = listener.getsockname()[1]
    closing = Closing()
    config = uvicorn.Config(
        build_app(page, token, port, closing),
        log_config=None, access_log=False, lifespan="off", ws="none", http=_http_protocol(), loop="asyncio",
        timeout_graceful_shutdown=1, server_header=False, limit_concurrency=_MAX_CONNECTIONS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_serve, args=(server, listener, page), name="headrace page", daemon=True)
    thread.start()
    try:
        yield f"http://{_LOOPBACK}:{port}/?token={token if given is None else f'${_TOKEN_VARIABLE}'}"
    finally:
        closing.end_streams()
        server.should_exit = True
        thread.join(3)


def _http_protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on the time until a connection's first byte.

    Otherwise a few idle connections, which need no token, would use up all that the page accepts.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._silence = self.loop.call_later(_MAX_SILENCE, transport.close)

        def data_received(self, data: bytes) -> None:
            self._silence.cancel()
            super().data_received(data)

    return Protocol


def _serve(server: Any, listener: socket.socket, page: Page) -> None:
    async def serve() -> None:
        refreshing = asyncio.create_task(_refresh(page))
        await server.serve(sockets=[listener])
        refreshing.cancel()

    try:
        asyncio.run(serve())
    except Exception:
        _LOG.exception("the page stopped; the run continues")


async def _refresh(page: Page) -> None:
    from starlette.concurrency import run_in_threadpool

    fails = False
    while True:
        try:
            await run_in_threadpool(page.refresh)
            fails = False
        except Exception as error:
            if not fails:  # once, although it is tried again and again
                _LOG.warning("the page could not be refreshed: %s: %s", type(error).__name__, error)
            fails = True
        await asyncio.sleep(_BETWEEN_LOOKS)


def _checked(given: str) -> str:
    """Validate and return a given token. Raises `BadInput` for a weak one."""
    if len(given) < _LEAST_TOKEN or not given.isascii() or not given.replace("-", "").isalnum():
        raise BadInput(
            f"{_TOKEN_VARIABLE} is not a usable token",
            why=f"A token has at least {_LEAST_TOKEN} letters, digits and hyphens.",
            fix="use the output of `openssl rand -hex 24`, or unset the variable for a random token",
        )
    return given


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
        listener.listen()  # at once, so that whoever follows the URL waits for the server to start
    except OSError as error:
        listener.close()
        raise BadInput(
            f"the page cannot be served at {_LOOPBACK}:{port}",
            why=error.strerror or str(error),
            fix="give another port, or none for a free one",
        ) from error
    return listener


# -- the application --------------------------------------------------------------------------


def build_app(page: Page, token: str, port: int, closing: Closing) -> ASGIApp:
    """Build the application. closing: set when the run ends."""
    from starlette.applications import Starlette
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    run = secrets.token_hex(4)

    def answers(give: Callable[[Request], JsonObject]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await _answer(request, give)

        return answer

    async def events(_request: Request) -> Response:
        return StreamingResponse(_stream(page, run, closing), media_type="text/event-stream")

    routes = [
        Route("/", _file("index.html")),
        *(Route(f"/{name}", _file(name)) for name in _static_names()),
        Route("/api/overview", answers(lambda _: page.overview())),
        Route("/api/flow", answers(lambda r: page.flow(_text(r, "view")))),
        Route("/api/state", answers(lambda _: page.state())),
        Route("/api/key", answers(lambda r: page.state_of_key(_text(r, "operator"), _text(r, "key")))),
        Route("/api/dead-letters", answers(lambda _: page.dead_letters())),
        Route(
            "/api/rows",
            answers(lambda r: page.rows(_text(r, "view"), _text(r, "search"), _number(r, "offset"))),
        ),
        Route("/api/why", answers(lambda r: page.why(_text(r, "view"), _text(r, "row")))),
        Route("/api/events", events),
    ]
    if isinstance(page, RunHistory):
        history = page
        routes += [
            Route("/api/runs", answers(lambda r: history.runs(_text(r, "view"), _number(r, "run")))),
            Route(
                "/api/changes",
                answers(
                    lambda r: history.changes(
                        _text(r, "view"), _number(r, "run"), _text(r, "search"), _number(r, "offset")
                    )
                ),
            ),
        ]
    app: Starlette = Starlette(routes=routes)
    return _Guard(app, token, port)


async def _answer(request: Request, give: Callable[[Request], JsonObject]) -> Response:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse

    try:
        return JSONResponse(await run_in_threadpool(give, request))
    except (HeadraceError, RecursionError) as error:  # a question that cannot be answered
        return JSONResponse({"why_not": str(error)})
    except Exception as error:
        _LOG.warning("the page could not answer %s: %s", request.url.path, error)
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "")


def _number(request: Request, name: str) -> int:
    given = _text(request, name)
    return min(int(given), 10**9) if given.isdecimal() and len(given) < 10 else 0


def _static_names() -> list[str]:
    folder = resources.files("headrace.ui") / "static"
    return sorted(each.name for each in folder.iterdir() if each.name.endswith((".css", ".js", ".svg")))


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    from starlette.responses import Response

    content = (resources.files("headrace.ui") / "static" / name).read_bytes()
    media = _TYPES["." + name.rpartition(".")[2]]

    async def give(_request: Request) -> Response:
        return Response(content, media_type=media)

    return give


async def _stream(page: Page, run: str, closing: Closing) -> AsyncIterator[str]:
    """Stream the status. run: distinguishes this process from one that served the same address before."""
    from starlette.concurrency import run_in_threadpool

    version, after, quiet = -1, 0, 0
    with closing.stream():
        while True:
            ends = closing.is_set  # before the look: what changed until then is still sent
            if (now := page.version()) != version:
                version, quiet = now, 0
                status = await run_in_threadpool(page.status, after)
                after = status["tick"]
                data = json.dumps({**status, "run": run})
                yield f"event: status\ndata: {data}\n\n"
            elif (quiet := quiet + 1) % _ALIVE_EVERY == 0:
                yield ": alive\n\n"
            if ends:
                yield "event: end\ndata: {}\n\n"
                return
            await asyncio.sleep(_BETWEEN_LOOKS)


class _Guard:
    """Checks of every request before the application sees it, and headers of every answer."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._port = port
        # Cookies ignore ports: two pages of this machine must not overwrite each other's.
        self._cookie = f"headrace-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        from starlette.requests import Request

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS.items()]
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not reach the application."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        host, _, port = request.headers.get("host", "").partition(":")
        if host not in _HOSTS or port != str(self._port):
            return PlainTextResponse("This page is served on 127.0.0.1 only.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET.\n", 405)
        given = request.query_params.get("token")
        if given is not None and self._matches(given):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(self._cookie, given, httponly=True, samesite="strict")
            return welcome
        if given is not None or not self._matches(request.cookies.get(self._cookie, "")):
            return PlainTextResponse("Wrong or missing token: open the URL that the command printed.\n", 403)
        return None

    def _matches(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="replace"), self._token)
