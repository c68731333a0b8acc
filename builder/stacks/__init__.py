"""One module per engine software."""
