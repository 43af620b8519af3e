import penstock as ps


class Bid:
    def __init__(self, price: float) -> None:
        self.price = price


flow = ps.Flow("auctions")
flow.source("bids", Bid)
