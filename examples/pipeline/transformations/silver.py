from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

STRICT = {"headrace.refresh_policy": "incremental_strict"}


@dp.materialized_view(table_properties=STRICT)
def orders() -> DataFrame:
    kept = spark.table("bronze_orders").where("cents > 0")
    return kept.withColumn("day", F.to_date("at")).withColumn("note", F.trim("note"))


@F.udf("string")
def grade(cents):
    return "large" if cents >= 9_000 else "middle" if cents >= 2_000 else "small"


@dp.materialized_view(table_properties=STRICT)
def graded_orders() -> DataFrame:
    return spark.table("orders").select("id", "customer", "cents", grade("cents").alias("grade"))
