"""What sources of files have in common: where they are, how many a tick takes, what becomes of bad rows."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.errors import BadInput
from penstock.io.source import Source, dead_letter_folder
from penstock.paths import local_path


@dataclass(frozen=True)
class Files(Source):
    """Files in the order of their names; new ones too when the run follows its sources.

    path:           a folder (the files directly in it), a file, or a pattern such as `in/*.json`.
                    Names that begin with `_` or `.` or end in `.tmp` are left alone: they are being written.
    dead_letter:    a folder for rows that cannot be read, as JSON lines, one file per tick: row, reason,
                    file and number. Without it such a row ends the run.
    files_per_tick: take so many whole files in each tick, however many rows they have.
    """

    path: str
    dead_letter: str | None
    files_per_tick: int | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dead_letter: str | os.PathLike[str] | None = None,
        files_per_tick: int | None = None,
    ) -> None:
        if files_per_tick is not None and files_per_tick < 1:
            raise BadInput(f"files_per_tick is {files_per_tick}", fix="give 1 or more, or leave it out")
        what = type(self).__name__
        letters = None if dead_letter is None else local_path(dead_letter, f"dead_letter of {what}")
        object.__setattr__(self, "path", local_path(path, what))
        object.__setattr__(self, "dead_letter", letters)
        object.__setattr__(self, "files_per_tick", files_per_tick)


@dead_letter_folder.register
def _(source: Files) -> str | None:
    return source.dead_letter
