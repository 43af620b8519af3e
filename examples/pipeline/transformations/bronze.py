from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

ORDERS = "id BIGINT, customer INT, cents BIGINT, at TIMESTAMP, note STRING"
CUSTOMERS = "id INT, name STRING, city STRING, op STRING, version BIGINT"


@dp.table
def bronze_orders() -> DataFrame:
    return spark.readStream.schema(ORDERS).parquet("input/orders")


@dp.table
def bronze_customers() -> DataFrame:
    return spark.readStream.schema(CUSTOMERS).json("input/customers")
