"""Examples hold doctests, but for files that only a run of their pipeline, or Airflow, can import."""

collect_ignore = ["pipeline/transformations", "airflow"]
