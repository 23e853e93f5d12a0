"""The truth: an append-only event log of everything asked, measured, saved and ended."""
