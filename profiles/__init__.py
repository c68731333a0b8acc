"""Example profiles, models and traffic, as package data."""
