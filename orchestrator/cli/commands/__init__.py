"""Implement one command of `haltsweep` per module."""
