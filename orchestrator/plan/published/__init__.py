"""Rows of published tables: their checks and their matches with planned measurements."""
