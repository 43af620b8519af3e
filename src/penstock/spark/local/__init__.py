"""What a local Spark is started with: Java, the JVM, its archive of classes."""
