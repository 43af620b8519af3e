-- The highest bids of each ten seconds.
-- A window has an answer from its first bid on, which changes.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bids b JOIN (
    SELECT max(price) AS highest, window.end AS window_end
    FROM bids
    GROUP BY window(date_time, '10 seconds')
) w ON b.price = w.highest
WHERE b.date_time BETWEEN w.window_end - INTERVAL 10 SECONDS AND w.window_end
