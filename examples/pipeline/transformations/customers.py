from pyspark import pipelines as dp

dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(
    target="customers",
    source="bronze_customers",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="op = 'D'",
    except_column_list=["op", "version"],
)

dp.create_streaming_table("customer_versions")
dp.create_auto_cdc_flow(
    target="customer_versions",
    source="bronze_customers",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="op = 'D'",
    except_column_list=["op", "version"],
    stored_as_scd_type=2,
)
