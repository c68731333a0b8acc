"""What is served: one folder for each Triton model."""
