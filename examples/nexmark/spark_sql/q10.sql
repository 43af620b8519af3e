-- A log of all bids, in a folder for each minute.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT auction, bidder, price, date_time, extra,
       date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm
FROM bids
