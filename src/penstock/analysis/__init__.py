"""From a flow graph to facts, strata, ranks and regions."""
