"""Classification of texts as local paths or URLs with unsupported schemes.

Whatever keeps or reads files takes its path from here. Without that, `s3://bucket/table` is a path, too: of a
folder called `s3:`, made on this machine without a word.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from penstock.errors import BadUri, SourceLocation

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

    Raises `BadUri` for any other scheme.
    """
    text = os.fspath(given)
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
