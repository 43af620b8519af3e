import headrace as hr


class Bid:
    def __init__(self, price: float) -> None:
        self.price = price


flow = hr.Flow("auctions")
flow.source("bids", Bid)
