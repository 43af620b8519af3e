"""Declarative pipelines of Spark (`pyspark.pipelines`), kept up to date by the changes of their inputs.

A table goes through four stages, each with a record that is complete when the stage ends: a `Dataset` is
what a file defines; a `StoredTable` has its queries analysed by Spark; a `TablePlan` is how it is
maintained; a `TableEntry` is what the last run left in the catalogue. `TableVersions` reads and writes its
rows.
"""
