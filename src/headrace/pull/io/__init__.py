"""Modules that read bytes from, and write bytes to, files, sockets and processes."""
