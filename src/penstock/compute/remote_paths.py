"""Files of another machine: told by their names, and never looked for here.

An error shows the line that a place names, so a place from the network could have any file of this machine
read and shown, or one that never ends.
"""

from __future__ import annotations

import re


def file_name(path: str) -> str:
    """The name of a file, without its folders.

    >>> file_name("/home/somebody/q4.py"), file_name("<q4.py>")
    ('q4.py', 'q4.py')
    """
    return re.split(r"[/\\]", path)[-1].removeprefix("<").removesuffix(">")


def elsewhere(path: str) -> str:
    """How a file of another machine is called here: what stands in `<>` is not looked for.

    >>> elsewhere("/etc/passwd")
    '<passwd>'
    """
    return f"<{file_name(path)}>"
