"""Implement the `haltsweep` command line."""
