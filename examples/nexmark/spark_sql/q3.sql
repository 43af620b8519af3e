-- Who sells in category 10 and lives in Oregon, Idaho or California?
-- source persons: id BIGINT NOT NULL, name STRING NOT NULL, email STRING NOT NULL, credit_card STRING NOT NULL, city STRING NOT NULL, state STRING NOT NULL, date_time TIMESTAMP NOT NULL, extra STRING NOT NULL
-- source auctions: id BIGINT NOT NULL, item STRING NOT NULL, description STRING NOT NULL, initial_bid BIGINT NOT NULL, reserve BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, extra STRING NOT NULL
SELECT p.name, p.city, p.state, a.id AS auction
FROM auctions a JOIN persons p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
