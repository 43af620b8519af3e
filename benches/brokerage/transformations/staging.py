from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def customer_records() -> DataFrame:
    columns = (
        "c_id BIGINT, at TIMESTAMP, tier INT, last_name STRING, first_name STRING, born DATE, city STRING, "
        "status STRING, credit INT, net_worth BIGINT"
    )
    return spark.readStream.schema(columns).parquet("input/customers")


@dp.table
def account_records() -> DataFrame:
    columns = "ca_id BIGINT, at TIMESTAMP, c_id BIGINT, broker BIGINT, name STRING, status STRING"
    return spark.readStream.schema(columns).parquet("input/accounts")


@dp.table
def trade_records() -> DataFrame:
    columns = (
        "t_id BIGINT, at TIMESTAMP, status STRING, kind STRING, symbol STRING, quantity INT, ca_id BIGINT, "
        "price DECIMAL(10, 2), fee DECIMAL(10, 2)"
    )
    return spark.readStream.schema(columns).parquet("input/trades")


@dp.temporary_view
def holding_records() -> DataFrame:
    columns = "t_id BIGINT, first_t_id BIGINT, before INT, after INT"
    return spark.read.schema(columns).parquet("input/holdings")


@dp.temporary_view
def cash_records() -> DataFrame:
    return spark.read.schema("ca_id BIGINT, at TIMESTAMP, amount DECIMAL(10, 2)").parquet("input/cash")


@dp.temporary_view
def daily_market() -> DataFrame:
    columns = (
        "day DATE, symbol STRING, close DECIMAL(8, 2), high DECIMAL(8, 2), low DECIMAL(8, 2), volume BIGINT"
    )
    return spark.read.schema(columns).parquet("input/market")


@dp.temporary_view
def financial_reports() -> DataFrame:
    columns = "company BIGINT, year INT, quarter INT, earnings DECIMAL(8, 2)"
    return spark.read.schema(columns).parquet("input/financials")


@dp.temporary_view
def securities() -> DataFrame:
    columns = "symbol STRING, name STRING, company BIGINT, exchange STRING, dividend DECIMAL(8, 2)"
    return spark.read.schema(columns).parquet("input/securities")


@dp.temporary_view
def prospect_records() -> DataFrame:
    columns = (
        "agency STRING, last_name STRING, first_name STRING, city STRING, income BIGINT, cars INT, "
        "children INT, age INT, credit INT, owns BOOLEAN, net_worth BIGINT"
    )
    return spark.read.schema(columns).parquet("input/prospects")


for source, target, key in (
    ("customer_records", "customer_versions", "c_id"),
    ("account_records", "account_versions", "ca_id"),
):
    dp.create_streaming_table(target)
    dp.create_auto_cdc_flow(
        target=target,
        source=source,
        keys=[key],
        sequence_by="at",
        stored_as_scd_type=2,
    )
