CREATE TEMPORARY VIEW located_orders AS
SELECT o.id, o.cents, o.day, c.city FROM orders o JOIN customers c ON o.customer = c.id;

CREATE MATERIALIZED VIEW revenue_by_city
TBLPROPERTIES ('headrace.refresh_policy' = 'incremental_strict')
AS SELECT city, count(*) AS orders, sum(cents) AS cents FROM located_orders GROUP BY city;

CREATE MATERIALIZED VIEW best_orders
TBLPROPERTIES ('headrace.refresh_policy' = 'incremental_strict')
AS SELECT city, id, cents FROM (
    SELECT *, row_number() OVER (PARTITION BY city ORDER BY cents DESC, id) AS place FROM located_orders
) WHERE place <= 3;

CREATE MATERIALIZED VIEW grades_by_day
TBLPROPERTIES ('headrace.refresh_policy' = 'incremental_strict')
AS SELECT o.day, g.grade, count(*) AS orders, max(g.cents) AS largest
FROM orders o JOIN graded_orders g USING (id) GROUP BY o.day, g.grade;

-- Of a sketch, too, only what changed is computed.
CREATE MATERIALIZED VIEW customers_by_day
AS SELECT day, hll_sketch_estimate(hll_sketch_agg(customer)) AS customers FROM orders GROUP BY day;
