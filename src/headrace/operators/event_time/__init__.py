"""Event time: watermarks, late rows, windows, and entries that become due as time passes."""
