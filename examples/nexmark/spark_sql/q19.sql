-- The ten highest bids on each auction.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place FROM bids
)
WHERE place <= 10
