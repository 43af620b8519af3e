-- The parts of each bid's address.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids
