"""From a plan to a Triton model repository, and the server that runs it."""
