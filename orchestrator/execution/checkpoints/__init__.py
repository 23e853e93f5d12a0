"""Checkpoints of trials: where they are stored, and which are kept."""
