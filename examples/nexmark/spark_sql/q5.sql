-- Which auctions had the most bids in the last ten seconds? Asked every two seconds.
-- A window has an answer from its first bid on, which changes.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
WITH counts AS (
    SELECT auction, window.start AS window_start, window.end AS window_end, count(*) AS num
    FROM bids
    GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
)
SELECT auction, window_start, window_end, num
FROM (SELECT *, max(num) OVER (PARTITION BY window_start) AS most FROM counts)
WHERE num = most
