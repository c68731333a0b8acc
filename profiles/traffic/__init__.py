"""Recorded-style traffic and the script that makes it."""
