"""Append-only event log of a sweep: the authoritative record of all trials, measurements and outcomes."""
