"""Datasets on disk and the order in which they are read."""
