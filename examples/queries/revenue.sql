-- Revenue of each region, and the share of the whole that it is.
-- source orders: id BIGINT NOT NULL, shop STRING NOT NULL, price DECIMAL(10, 2) NOT NULL, at TIMESTAMP NOT NULL
-- table shops: shop STRING NOT NULL, region STRING NOT NULL
SELECT region,
       count(*) AS orders,
       sum(price) AS revenue,
       round(100 * sum(price) / (SELECT sum(price) FROM orders JOIN shops USING (shop)), 1) AS percent
FROM orders JOIN shops USING (shop)
GROUP BY region
