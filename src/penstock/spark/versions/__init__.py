"""Content of sinks at many times, in files that tasks write and anybody reads."""
