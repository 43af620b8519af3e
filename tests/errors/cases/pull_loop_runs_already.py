import asyncio

from headrace.pull import PullSource, collect, pull


def clock(module):
    return lambda abort, answer: module.later(1, answer, True)


async def main():
    pull(PullSource.of("clock", clock), collect()).run()


asyncio.run(main())
