from headrace import Engine

Engine("shop")
