"""Sources and sinks as pull-streams, for the in-process run and for pipelines without a flow."""
