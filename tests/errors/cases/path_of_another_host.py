"""A file: URL that names another machine."""

from headrace.io import JsonFiles

JsonFiles("file://server/in")
