"""Classification of texts as local paths or URLs with unsupported schemes.

Whatever keeps or reads files takes its path from here. Without that, `s3://bucket/table` is a path, too: of a
folder called `s3:`, made on this machine without a word.
"""

from __future__ import annotations

import os
import re
from typing import cast
from urllib.parse import unquote

from headrace.errors import BadInput, BadUri, SourceLocation

# As in RFC 3986, where a relative path must not begin so. One letter is a drive: C:\data. That slashes follow
# is not asked for: of two, a `Path` has kept one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
_SECRET = re.compile(r"//.*@")


def scheme_of(text: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case, or "" for a path."""
    found = _SCHEME.match(os.fspath(text))
    return found[1].lower() if found else ""


def local_path(given: str | os.PathLike[str], what: str) -> str:
    """Convert a path or a local `file:` URL to a path.

    what: names it in the error ("checkpoint", "Changelog").

    Raises `BadUri` for any other scheme, `BadInput` for a value that is no path.
    """
    text = path_text(given, what)
    scheme = scheme_of(text)
    if not scheme:
        return text
    rest = text[len(scheme) + 1 :]
    if scheme == "file":
        if not rest.startswith("//"):
            return unquote(rest)
        host, slash, path = rest[2:].partition("/")
        if host in ("", "localhost") and slash:
            return unquote(f"/{path}")
        raise unsupported_scheme_error(
            text, what, why=f"Files are those of this machine; the URL names the host {host!r}."
        )
    raise unsupported_scheme_error(text, what)


def path_text(given: object, what: str) -> str:
    """Return the text of a path or URL. Raises `BadInput` for other values. what: names it in the error."""
    if isinstance(given, str | os.PathLike):
        return str(os.fspath(cast("str | os.PathLike[str]", given)))
    several = isinstance(given, list | tuple | set)
    raise BadInput(
        f"{what} takes a path, got {type(given).__name__} {given!r:.60}",
        where=[SourceLocation.of_caller()],
        fix="give the folder of the files, or a pattern such as in/*.json"
        if several
        else "give text or a Path",
    )


_WHY = "It must be a path of the operating system, where {scheme}: would be the name of a folder."
_FIX = """\
give a path, also one of a mounted file system. Of object stores, Delta tables can be read and written:
delta:s3://BUCKET/TABLE. A name with a colon in it is given as an absolute path"""


def unsupported_scheme_error(text: str, what: str, *, why: str = _WHY, fix: str = _FIX) -> BadUri:
    """Build the error for a URL with an unsupported scheme."""
    scheme = scheme_of(text)
    shown = _SECRET.sub("//***@", text)
    return BadUri(
        f"{what}: the scheme {scheme!r} of {shown!r} is not supported",
        where=[SourceLocation.of_caller()],
        why=why.format(scheme=scheme),
        fix=fix,
        uri=shown,
        scheme=scheme,
    )
