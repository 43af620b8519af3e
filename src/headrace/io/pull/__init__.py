"""Sources and sinks as pull-streams, for the in-process engine and for pipelines without a flow."""
