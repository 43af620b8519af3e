from headrace.pull import collect, map, pull, values


async def fetch(key: str) -> str:
    return key.upper()


pull(values("ab"), map(fetch), collect()).run()
