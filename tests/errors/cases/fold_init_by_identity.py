import penstock as ps


class Basket:
    def __init__(self):
        self.fruit = []

    def put(self, fruit):
        self.fruit.append(fruit)
        return self

    def __repr__(self):
        return "Basket()"


flow = ps.Flow("orders")
fruit = flow.source("fruit", str)
flow.sink("basket", fruit.fold(Basket(), Basket.put))
