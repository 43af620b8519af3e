"""Event time: watermarks, late rows, windows, and what is due when time has passed."""
