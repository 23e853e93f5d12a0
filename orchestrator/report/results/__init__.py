"""Compute a report from records."""
