"""Sources and sinks of files: CSV, JSON and Parquet in; changelogs, tables and dead letters out."""
