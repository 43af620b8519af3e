"""Validity dates of certificates, read from their PEM and checked before a process starts with them.

An expired certificate loads without complaint, and then every connection fails. Python's `ssl` reports the
dates of peers and authorities only, so this module reads them from the DER: they are the fifth field of a
certificate. OpenSSL has already validated the whole certificate; no other field is examined.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.errors import BadOption

SOON = timedelta(days=14)
"""Time before expiry at which to start warning."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_NEVER = datetime.max.replace(tzinfo=UTC)
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity period of a certificate, both ends included."""

    start: datetime
    end: datetime


def read_validities(pem: bytes) -> list[Validity]:
    """Read the validity of each certificate in a file. Raises `BadOption` if that fails."""
    try:
        return [_of(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in _PEM.findall(pem)]
    except (ValueError, IndexError) as error:
        raise BadOption(
            "the dates of a certificate cannot be read",
            why=f"{type(error).__name__}: {error}",
            fix="give a certificate as RFC 5280 has it",
            option="certificate",
        ) from error


def check_chain(pem: bytes, now: datetime, path: str | Path | None = None) -> datetime:
    """Return the earliest expiry in our own certificate chain.

    Raises `BadOption` if any certificate of the chain has expired or is not valid yet.
    """
    found = read_validities(pem)
    named = "the certificate" if path is None else f"the certificate {path}"
    for number, each in enumerate(found):
        _check(each, now, named if not number else f"an issuer in {named} (number {number})", "certificate")
    return min((each.end for each in found), default=_NEVER)


def check_authorities(pem: bytes, now: datetime, path: str | Path) -> None:
    """Raise `BadOption` if none of the authorities is valid. Individual ones in a bundle may have expired."""
    found = read_validities(pem)
    if found and not any(each.start <= now <= each.end for each in found):
        _check(max(found, key=lambda each: each.end), now, f"the CA {path}", "ca")


def _check(validity: Validity, now: datetime, named: str, option: str) -> None:
    if validity.start <= now <= validity.end:
        return
    if now > validity.end:
        what = f"{named} expired on {format_utc(validity.end)}"
    else:
        what = f"{named} is not valid before {format_utc(validity.start)}"
    raise BadOption(
        what,
        why=f"It is {format_utc(now)} by the clock of this machine. No other side would trust it.",
        fix="have a new one issued, or set the clock right",
        option=option,
        start=validity.start,
        end=validity.end,
    )


def format_utc(moment: datetime) -> str:
    """Format a time in UTC for people."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# --- DER ---------------------------------------------------------------------------------


def _of(der: bytes) -> Validity:
    (certificate,) = _elements(der, 1)
    (to_be_signed,) = _elements(_within(certificate, _SEQUENCE), 1)
    # Version (absent in X.509 v1), then serial number, algorithm, issuer, validity.
    fields = list(_elements(_within(to_be_signed, _SEQUENCE), 5))
    validity = fields[4] if fields[0][0] == _VERSION else fields[3]
    start, end = _elements(_within(validity, _SEQUENCE), 2)
    return Validity(_moment(start), _moment(end))


_Element = tuple[int, bytes]
"""DER element: its tag and content."""


def _elements(data: bytes, count: int) -> Iterator[_Element]:
    """Yield the first `count` elements of a sequence's content."""
    at = 0
    for _ in range(count):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("an element ends behind its sequence")
        yield tag, data[at : at + length]
        at += length


def _within(element: _Element, tag: int) -> bytes:
    if element[0] != tag:
        raise ValueError(f"tag {element[0]:#x} in place of {tag:#x}")
    return element[1]


def _moment(element: _Element) -> datetime:
    tag, content = element
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = f"{'19' if text >= '50' else '20'}{text}"
    elif tag != _TIME:
        raise ValueError(f"tag {tag:#x} in place of a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
