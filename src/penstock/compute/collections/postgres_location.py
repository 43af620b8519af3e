"""Where in which PostgreSQL database collections are, and with what password; it is shown nowhere."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from penstock.errors import BadInput
from penstock.io.postgres.server import Server

_SCHEMA = re.compile(r"[?&]schema=(?P<name>[^&@#]*)(?=&|$)")


@dataclass(frozen=True, slots=True)
class Location:
    """schema: where the tables are; None: the first of the server's search path."""

    server: Server
    schema: str | None

    @classmethod
    def of(cls, url: str) -> Location:
        """Of `postgresql://USER@HOST:PORT/DATABASE?schema=SCHEMA&sslmode=...`, as `Server.of` reads it.

        A password that is neither in it nor in PGPASSWORD is looked for in the file that PGPASSFILE names,
        else in ~/.pgpass. Raises `BadUri`, `BadInput` for a file that others may read.
        """
        found = _SCHEMA.search(url)
        if found is not None:
            rest = url[found.end() :]
            url = url[: found.start()] + (f"?{rest[1:]}" if found[0][0] == "?" and rest else rest)
        server = Server.of(url)
        if server.password is None:
            server = replace(server, password=_password(server))
        return cls(server, (found["name"] or None) if found else None)

    def __str__(self) -> str:
        return f"{self.server}, schema {self.schema}" if self.schema else str(self.server)


def _password(server: Server) -> str | None:
    """From the password file, whose lines are host:port:database:user:password with * for any."""
    path = os.environ.get("PGPASSFILE") or os.path.expanduser("~/.pgpass")
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise BadInput(
                    f"others may read the password file {path}",
                    fix=f"chmod 600 {path}",
                    file=path,
                )
            lines = file.read().splitlines()
    except OSError:
        return None
    wanted = (server.host, str(server.port), server.database, server.user)
    for line in lines:
        fields = [re.sub(r"\\(.)", r"\1", field) for field in re.findall(r"(?:^|:)((?:\\.|[^\\:])*)", line)]
        if len(fields) == 5 and all(a in ("*", b) for a, b in zip(fields, wanted)):
            return fields[4]
    return None
