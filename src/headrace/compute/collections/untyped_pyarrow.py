"""pyarrow without type stubs: the type checker sees each of its modules as `Any`."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.fs  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

ArrowTable: TypeAlias = Any
ArrowBatch: TypeAlias = Any
pa: Any = pyarrow
compute: Any = pyarrow.compute  # pyright: ignore[reportUnknownMemberType]
file_systems: Any = pyarrow.fs
parquet: Any = pyarrow.parquet
