"""SQL queries and PySpark DataFrames as flows, planned by Spark's own Catalyst."""
