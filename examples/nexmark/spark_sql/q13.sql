-- Each bid with what is known beforehand of its auction.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
-- source side_input: key BIGINT NOT NULL, value STRING NOT NULL
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bids b JOIN side_input s ON b.auction % 10000 = s.key
