"""Ends of pipelines outside of the process: files, sockets, processes, streams of asyncio. One file each."""
