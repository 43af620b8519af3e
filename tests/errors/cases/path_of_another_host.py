"""A file: URL that names another machine."""

from penstock.io import JsonFiles

JsonFiles("file://server/in")
