-- Who has registered and opened an auction within the same ten seconds?
-- source persons: id BIGINT NOT NULL, name STRING NOT NULL, email STRING NOT NULL, credit_card STRING NOT NULL, city STRING NOT NULL, state STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
-- source auctions: id BIGINT NOT NULL, item STRING NOT NULL, description STRING NOT NULL, initial_bid BIGINT NOT NULL, reserve BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, extra STRING NOT NULL
SELECT p.id, p.name, p.starttime
FROM (
    SELECT DISTINCT id, name, window(date_time, '10 seconds').start AS starttime FROM persons
) p JOIN (
    SELECT DISTINCT seller, window(date_time, '10 seconds').start AS starttime FROM auctions
) a ON p.id = a.seller AND p.starttime = a.starttime
