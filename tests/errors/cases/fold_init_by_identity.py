import headrace as hr


class Basket:
    def __init__(self):
        self.fruit = []

    def put(self, fruit):
        self.fruit.append(fruit)
        return self

    def __repr__(self):
        return "Basket()"


flow = hr.Flow("orders")
fruit = flow.source("fruit", str)
flow.sink("basket", fruit.fold(Basket(), Basket.put))
