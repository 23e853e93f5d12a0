"""Checks that a search can vary what its spec says."""
