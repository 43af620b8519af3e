CREATE MATERIALIZED VIEW dim_customer AS
SELECT c_id, tier, last_name, first_name, born, city, status, credit, net_worth,
       __START_AT AS effective, coalesce(__END_AT, TIMESTAMP '9999-12-31') AS ending, __END_AT IS NULL AS is_current
FROM customer_versions;

CREATE MATERIALIZED VIEW dim_account AS
SELECT a.ca_id, a.c_id, a.broker, a.name, a.status, c.tier,
       greatest(a.__START_AT, c.effective) AS effective,
       least(coalesce(a.__END_AT, TIMESTAMP '9999-12-31'), c.ending) AS ending
FROM account_versions a JOIN dim_customer c
  ON a.c_id = c.c_id AND a.__START_AT < c.ending AND c.effective < coalesce(a.__END_AT, TIMESTAMP '9999-12-31');

CREATE MATERIALIZED VIEW trades AS
SELECT t_id, kind, symbol, quantity, ca_id,
       min(at) FILTER (WHERE status IN ('SBMT', 'PNDG')) AS created,
       max(at) FILTER (WHERE status IN ('CMPT', 'CNCL')) AS closed,
       max_by(status, at) AS status, max(price) AS price, sum(fee) AS fee
FROM trade_records GROUP BY t_id, kind, symbol, quantity, ca_id;

CREATE MATERIALIZED VIEW dim_trade AS
SELECT t.t_id, t.kind, t.status, t.created, t.closed, t.quantity, t.price, t.fee, s.symbol, s.company,
       a.ca_id, a.c_id, a.broker, a.tier
FROM trades t
JOIN securities s ON t.symbol = s.symbol
JOIN dim_account a ON t.ca_id = a.ca_id AND t.created >= a.effective AND t.created < a.ending;

CREATE MATERIALIZED VIEW fact_holdings AS
SELECT h.t_id, h.first_t_id, t.c_id, t.ca_id, t.symbol, t.company, to_date(t.closed) AS day, t.price, h.after AS holding
FROM holding_records h JOIN dim_trade t ON h.t_id = t.t_id;

CREATE MATERIALIZED VIEW fact_cash_balances AS
SELECT ca_id, day, sum(amount) OVER (PARTITION BY ca_id ORDER BY day) AS cash
FROM (SELECT ca_id, to_date(at) AS day, sum(amount) AS amount FROM cash_records GROUP BY ca_id, to_date(at));

CREATE MATERIALIZED VIEW yearly_earnings AS
SELECT company, year, quarter,
       sum(earnings) OVER (PARTITION BY company ORDER BY year, quarter ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS earnings
FROM financial_reports;

CREATE MATERIALIZED VIEW fact_market_history AS
SELECT m.symbol, m.day, m.close, m.high, m.low, m.volume, m.year_high, m.year_low,
       round(m.close / nullif(e.earnings, 0), 4) AS price_to_earnings, round(s.dividend / m.close * 100, 4) AS yield
FROM (
  SELECT *, max(high) OVER year AS year_high, min(low) OVER year AS year_low
  FROM daily_market
  WINDOW year AS (PARTITION BY symbol ORDER BY day RANGE BETWEEN INTERVAL '364' DAY PRECEDING AND CURRENT ROW)
) m
JOIN securities s ON m.symbol = s.symbol
LEFT JOIN yearly_earnings e
  ON s.company = e.company AND year(add_months(m.day, -3)) = e.year AND quarter(add_months(m.day, -3)) = e.quarter;

CREATE MATERIALIZED VIEW prospect AS
SELECT p.agency, p.last_name, p.first_name, p.city, p.income, p.cars, p.children, p.age, p.credit, p.owns, p.net_worth,
       c.c_id IS NOT NULL AS is_customer,
       concat_ws('+',
         CASE WHEN p.net_worth > 1000000 OR p.income > 200000 THEN 'HighValue' END,
         CASE WHEN p.children > 3 OR p.cars > 3 THEN 'Expenses' END,
         CASE WHEN p.age > 45 THEN 'Boomer' END,
         CASE WHEN p.income < 50000 OR p.credit < 600 OR p.net_worth < 100000 THEN 'MoneyAlert' END,
         CASE WHEN p.cars > 3 OR p.credit > 700 THEN 'Spender' END,
         CASE WHEN p.age < 25 AND p.net_worth > 1000000 THEN 'Inherited' END) AS marketing
FROM prospect_records p
LEFT JOIN (SELECT c_id, last_name, first_name, city FROM dim_customer WHERE is_current AND status = 'ACTV') c
  ON upper(p.last_name) = upper(c.last_name) AND upper(p.first_name) = upper(c.first_name) AND p.city = c.city;
