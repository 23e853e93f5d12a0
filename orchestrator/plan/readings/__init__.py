"""Readings of trained models under other settings, and the published values beside them."""
