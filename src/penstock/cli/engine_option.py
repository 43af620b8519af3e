"""The engines that commands name."""

from __future__ import annotations

from enum import Enum


class Where(Enum):
    HERE = "here"
    SPARK = "spark"
