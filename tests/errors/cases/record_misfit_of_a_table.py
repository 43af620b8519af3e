from typing import NamedTuple

import penstock as ps


class Address(NamedTuple):
    street: str
    tags: dict[str, int]


class Customer(NamedTuple):
    shop: str
    id: int
    address: Address | None


flow = ps.Flow("shops")
flow.sink("customers", flow.table("customers", Customer, key=["shop", "id"]))
engine = ps.Engine(flow)
old, new = (Customer("tea", 7, Address(street, {"floor": 2})) for street in ("Elm St", "Oak St"))
engine.tick(customers=[old])
engine.tick(customers=[ps.update(new, Customer("tea", 7, None))])
