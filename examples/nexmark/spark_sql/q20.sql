-- The bids on auctions of category 10, with all there is to know of the auction.
-- source auctions: id BIGINT NOT NULL, item STRING NOT NULL, description STRING NOT NULL, initial_bid BIGINT NOT NULL, reserve BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, extra STRING NOT NULL
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
       a.item, a.description, a.initial_bid, a.reserve, a.date_time AS date_time_of_auction, a.expires,
       a.seller, a.category, a.extra AS extra_of_auction
FROM bids b JOIN auctions a ON b.auction = a.id
WHERE a.category = 10
