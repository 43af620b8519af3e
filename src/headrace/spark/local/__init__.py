"""Startup of a local Spark: Java, the JVM, its class archive."""
