"""Historical content of sinks, in files written by tasks and readable by any process."""
