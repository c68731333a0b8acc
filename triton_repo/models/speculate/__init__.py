"""The served model: validated requests in, verified tokens of a session out."""
