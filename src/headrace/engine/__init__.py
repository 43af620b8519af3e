"""The in-process engine: plan, generated code, state, ticks."""
