"""Node-pressure eviction: thresholds, what is observed, who goes first. Pure; whoever looks at the machine is outside."""
