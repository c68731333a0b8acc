"""From a profile to two engines: facts, checks, steps, stacks."""
