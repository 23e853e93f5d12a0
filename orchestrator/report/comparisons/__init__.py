"""Compares arms: differences, intervals and verdicts, and the tables that show them."""
