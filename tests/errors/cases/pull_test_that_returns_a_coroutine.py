from headrace.pull import collect, filter, pull, values


async def is_known(key: str) -> bool:
    return key == "a"


pull(values("ab"), filter(lambda key: is_known(key)), collect()).run()
