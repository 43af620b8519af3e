"""A sink of files whose place is an object store: it would have been a local folder called `s3:`."""

from headrace.io import Changelog

Changelog("s3://bucket/averages")
