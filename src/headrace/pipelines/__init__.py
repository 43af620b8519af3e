"""Declarative pipelines of Spark (`pyspark.pipelines`), kept up to date by the changes of their inputs."""
