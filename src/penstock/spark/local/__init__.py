"""Start of a local Spark: Java, the JVM, its archive of classes."""
