"""Bytes from and into files, sockets and processes."""
