from penstock import Engine

Engine("shop")
