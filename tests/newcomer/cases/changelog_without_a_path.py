from headrace.io import Changelog

Changelog()
