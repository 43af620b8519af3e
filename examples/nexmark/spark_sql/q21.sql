-- The channel of each bid as a number, from its name or from its address.
-- source bids: auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT NULL, url STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
SELECT auction, bidder, price, channel,
       CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bids
WHERE url RLIKE '(&|^)channel_id=([^&]*)' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
