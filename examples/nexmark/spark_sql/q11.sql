-- How many bids did each bidder make in a row, with less than ten seconds between them?
-- Bids just ten seconds apart are in one session, as Spark has it; in the flow in Python they are in two.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT bidder, session_window.start AS window_start, session_window.end AS window_end, count(*) AS bid_count
FROM bids
GROUP BY bidder, session_window(date_time, '10 seconds')
