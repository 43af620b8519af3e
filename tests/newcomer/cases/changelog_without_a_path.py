from penstock.io import Changelog

Changelog()
