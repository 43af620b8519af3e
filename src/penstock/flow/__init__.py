"""What users write: flows, streams, operators."""
