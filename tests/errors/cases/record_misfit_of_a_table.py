from typing import NamedTuple

import headrace as hr


class Address(NamedTuple):
    street: str
    tags: dict[str, int]


class Customer(NamedTuple):
    shop: str
    id: int
    address: Address | None


flow = hr.Flow("shops")
flow.sink("customers", flow.table("customers", Customer, key=["shop", "id"]))
engine = hr.Engine(flow)
old, new = (Customer("tea", 7, Address(street, {"floor": 2})) for street in ("Elm St", "Oak St"))
engine.tick(customers=[old])
engine.tick(customers=[hr.update(new, Customer("tea", 7, None))])
