"""The server of the page: tokens, hosts, methods, headers, hostile rows, and failures that stay its own."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from email.message import Message
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from headrace.errors import BadInput
from headrace.ui import JsonObject, serving_page
from headrace.ui.server import _MAX_CONNECTIONS, Closing, _Guard, build_app
from tests.golden import assert_golden
from tests.ui.conftest import ENVIRONMENT, ROOT, RUN, Started

GOLDEN = Path(__file__).parent / "golden"


class Fake:
    """A page of fixed answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.number = 1

    def refresh(self) -> None:
        raise OSError("the disk is gone")

    def version(self) -> int:
        return self.number

    def overview(self) -> JsonObject:
        return {"kind": "run", "title": "<script>alert(1)</script>"}

    def flow(self, view: str) -> JsonObject:
        return {"svg": view}

    def status(self, after: int) -> JsonObject:
        return {"tick": self.number, "after": after, "ticks": []}

    def state(self) -> JsonObject:
        raise ValueError("no state")

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        if operator == "unknown":
            raise BadInput("no operator 'unknown'")
        return {"operator": operator, "key": key}

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        self.asked.append((view, search, str(offset)))
        return {"rows": []}

    def dead_letters(self) -> JsonObject:
        return {}

    def why(self, view: str, row: str) -> JsonObject:
        return {"row": row}


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


class Client:
    """Requests to a served page, with or without what the guard asks for."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        self.port = parts.port or 0
        self.token = parts.query.removeprefix("token=")
        self.cookie = f"headrace-{self.port}={self.token}"

    def ask(
        self, path: str, *, cookie: str | None = None, host: str | None = None, method: str = "GET"
    ) -> Answer:
        connection = self.send(path, cookie=cookie, host=host, method=method)
        with closing(connection):
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, b"" if path == "/api/events" else answer.read())

    def send(
        self, path: str, *, cookie: str | None = None, host: str | None = None, method: str = "GET"
    ) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        connection.putheader("Cookie", self.cookie if cookie is None else cookie)
        connection.endheaders()
        return connection


@pytest.fixture
def page() -> Fake:
    return Fake()


@pytest.fixture
def client(page: Fake) -> Iterator[Client]:
    with serving_page(page) as url:
        yield Client(url)


def test_the_token_of_the_url_becomes_a_cookie_and_leaves_the_address(client: Client) -> None:
    answer = client.ask(f"/?token={client.token}", cookie="")
    assert (answer.status, answer.headers.get("location")) == (303, "/")
    cookie = answer.headers.get("set-cookie") or ""
    assert cookie.startswith(client.cookie)
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert client.ask("/").status == 200


@pytest.mark.parametrize("path", ["/", "/page.js", "/api/overview", "/api/events", "/nothing"])
def test_without_the_token_there_is_nothing(client: Client, path: str) -> None:
    for cookie in ("", f"headrace-{client.port}=x", f"headrace-{client.port}={client.token}x", "other=1"):
        assert client.ask(path, cookie=cookie).status == 403
    assert client.ask(f"{path}?token=%FF%00", cookie="").status == 403
    assert client.ask(f"{path}?token=wrong").status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""]
)
def test_other_hosts_are_refused_even_with_the_token(client: Client, host: str) -> None:
    assert client.ask("/api/overview", host=host or " ").status in (400, 403)


def test_localhost_is_this_machine_too(client: Client) -> None:
    assert client.ask("/api/overview", host=f"localhost:{client.port}").status == 200


def test_the_address_cannot_lead_to_another_host(client: Client) -> None:
    answer = client.ask(f"//evil.example/?token={client.token}", cookie="")
    assert (answer.status, answer.headers.get("location")) == (303, "/")


def test_connections_are_limited(client: Client) -> None:
    with ExitStack() as opened:
        answers: list[int] = []
        for _ in range(_MAX_CONNECTIONS + 1):  # one after the other: each is counted before the next comes
            stream = client.send("/api/events")
            opened.callback(stream.close)
            answers.append(stream.getresponse().status)
    assert (answers[0], answers[-1]) == (200, 503)


def test_connections_that_send_nothing_are_closed(page: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ui.server._MAX_SILENCE", 0.05)
    with serving_page(page) as url, socket.create_connection(("127.0.0.1", urlsplit(url).port)) as silent:
        silent.settimeout(10)
        assert silent.recv(1) == b""
        assert Client(url).ask("/api/overview").status == 200


def test_a_request_cut_off_by_the_end_prints_nothing() -> None:
    script = """
import threading, time
from headrace.ui import serving_page
from tests.ui.test_server import Client, Fake

class Slow(Fake):
    def refresh(self):
        pass

    def why(self, view, row):
        asked.set()
        time.sleep(20)

asked = threading.Event()
with serving_page(Slow()) as url:
    connection = Client(url).send("/api/why?view=a&row=b")
    asked.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_is_answered(client: Client, method: str) -> None:
    answer = client.ask("/api/overview", method=method)
    assert answer.status == 405
    assert answer.headers.get("access-control-allow-origin") is None


def test_every_answer_forbids_what_the_page_does_not_need(client: Client) -> None:
    for path, cookie in (("/", None), ("/api/overview", None), ("/api/overview", "")):
        answer = client.ask(path, cookie=cookie)
        policy = answer.headers.get("content-security-policy") or ""
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers.get("x-content-type-options") == "nosniff"
        assert answer.headers.get("referrer-policy") == "no-referrer"
        assert answer.headers.get("cache-control") == "no-store"


@pytest.mark.parametrize(
    "path",
    ["/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "/static/page.js", "/page.py", "//etc/passwd"],
)
def test_only_the_pages_own_files_are_served(client: Client, path: str) -> None:
    assert client.ask(path).status == 404


def test_answers_are_json_that_no_browser_takes_for_markup(client: Client) -> None:
    answer = client.ask("/api/overview")
    assert answer.headers.get("content-type") == "application/json"
    assert json.loads(answer.body)["title"] == "<script>alert(1)</script>"


def test_a_failure_is_told_and_the_page_goes_on(client: Client) -> None:
    answer = client.ask("/api/state")
    assert (answer.status, json.loads(answer.body)) == (500, {"error": "ValueError: no state"})
    assert client.ask("/api/overview").status == 200


def test_a_question_without_an_answer_says_why(client: Client) -> None:
    answer = client.ask("/api/key?operator=unknown&key=1")
    assert (answer.status, json.loads(answer.body)) == (
        200,
        {"why_not": "P202 BadInput: no operator 'unknown'"},
    )


def test_strange_parameters_are_passed_on_as_text(client: Client, page: Fake) -> None:
    client.ask("/api/rows?view=%3Cb%3E&search=%00%27&offset=-1")
    client.ask("/api/rows?view=v&offset=99999999999999")
    client.ask("/api/rows?view=v&offset=200")
    assert page.asked == [("<b>", "\x00'", "0"), ("v", "", "0"), ("v", "", "200")]


def test_the_status_comes_as_events_until_the_end(page: Fake) -> None:
    lines: list[str] = []
    with serving_page(page) as url:
        client = Client(url)
        connection = client.send("/api/events")
        answer = connection.getresponse()
        first = threading.Event()

        def read() -> None:
            for line in answer:
                lines.append(line.decode().rstrip())
                if line.startswith(b"data") and not first.is_set():
                    page.number = 2
                    first.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert first.wait(20)
        while not any('"tick": 2' in line for line in list(lines)):
            assert reader.is_alive()
    reader.join(20)
    connection.close()
    data = [json.loads(line[6:]) for line in lines if line.startswith('data: {"')]
    assert [(each["tick"], each["after"]) for each in data] == [(1, 0), (2, 1)]
    assert lines[-3:-1] == ["event: end", "data: {}"]


def test_a_token_of_ones_own_survives_a_restart_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, page: Fake
) -> None:
    monkeypatch.setenv("HEADRACE_UI_TOKEN", "0123456789abcdef-own")
    with serving_page(page) as url:
        assert url.endswith("/?token=$HEADRACE_UI_TOKEN")
        url = url.replace("$HEADRACE_UI_TOKEN", "0123456789abcdef-own")
        assert Client(url).ask("/api/overview").status == 200


@pytest.mark.parametrize("token", ["", "short", "0123456789abcdef;x", "0123456789abcdefé"])
def test_a_weak_token_is_refused(monkeypatch: pytest.MonkeyPatch, page: Fake, token: str) -> None:
    monkeypatch.setenv("HEADRACE_UI_TOKEN", token)
    with pytest.raises(BadInput) as refused, serving_page(page):
        pass
    assert_golden(GOLDEN / "weak_token.txt", f"{refused.value}\n")


def test_a_port_that_is_taken_is_told_before_anything_runs(page: Fake) -> None:
    with serving_page(page) as url:
        port = Client(url).port
        with pytest.raises(BadInput) as refused, serving_page(page, port):
            pass
        assert_golden(GOLDEN / "port_taken.txt", f"{refused.value}\n".replace(str(port), "PORT"))


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch, page: Fake) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(BadInput) as refused, serving_page(page):
        pass
    assert_golden(GOLDEN / "not_installed.txt", f"{refused.value}\n")


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, page: Fake) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("headrace.ui.server.secrets.compare_digest", compare)
    app = build_app(page, "right", 1, Closing())
    assert isinstance(app, _Guard)
    assert not app._matches("wrong")
    assert app._matches("right")
    assert compared == [(b"wrong", b"right"), (b"right", b"right")]


def test_a_run_that_is_refused_prints_no_address(start: Callable[..., Started], folder: Path) -> None:
    start(*RUN)
    for command, code in ((RUN, "P312"), (("run", "flows.py:flow", "--ui"), "P202")):
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli", *command],
            cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr.split()[0]) == (2, code)
