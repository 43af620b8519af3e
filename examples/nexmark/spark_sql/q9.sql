-- Which bid wins each auction?
-- source auctions: id BIGINT NOT NULL, item STRING NOT NULL, description STRING NOT NULL, initial_bid BIGINT NOT NULL, reserve BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, extra STRING NOT NULL
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT id, item, description, initial_bid, reserve, date_time, expires, seller, category,
       auction, bidder, price, date_time_of_bid, extra
FROM (
    SELECT a.id, a.item, a.description, a.initial_bid, a.reserve,
           a.date_time, a.expires, a.seller, a.category,
           b.auction, b.bidder, b.price, b.date_time AS date_time_of_bid, b.extra,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS place
    FROM auctions a JOIN bids b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place = 1
