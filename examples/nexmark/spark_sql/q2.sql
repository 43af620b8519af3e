-- Which bids are on some chosen auctions?
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT auction, price FROM bids WHERE auction % 123 = 0
