"""What sinks were at many times, in files that tasks write and anybody reads."""
