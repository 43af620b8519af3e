"""A changelog that is to be compacted up to its last tick."""

from headrace.io import Changelog

Changelog("averages", compact_after=0)
