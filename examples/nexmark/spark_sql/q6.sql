-- What did the last ten auctions of each seller close at, on average?
-- source auctions: id BIGINT NOT NULL, item STRING NOT NULL, description STRING NOT NULL, initial_bid BIGINT NOT NULL, reserve BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, extra STRING NOT NULL
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
WITH final_prices AS (
    SELECT a.id, a.seller, a.expires, max(b.price) AS price
    FROM auctions a JOIN bids b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
)
SELECT seller, avg(price) AS average
FROM (
    SELECT seller, price, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS place
    FROM final_prices
)
WHERE place <= 10
GROUP BY seller
