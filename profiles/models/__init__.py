"""The small models that ship, and the scripts that made them."""
