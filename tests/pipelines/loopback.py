"""An HTTP server on a loopback address that keeps what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


@dataclass
class Received:
    """Requests of a server, as method, path, headers and body. status: its answer to each."""

    url: str
    status: int = 200
    requests: list[tuple[str, str, dict[str, str], str]] = field(
        default_factory=list[tuple[str, str, dict[str, str], str]]
    )


@contextmanager
def loopback_server() -> Iterator[Received]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.requests.append((self.command, self.path, headers, body))
            self.send_response(received.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_PUT = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Received(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()
