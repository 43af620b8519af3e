"""Text files as bytes, uncompressed on the way where their name ends in .gz."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, cast


def open_bytes(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")
