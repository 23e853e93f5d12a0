"""Computes a report from records."""
