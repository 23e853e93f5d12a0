"""Ablation check: verify that every arm differs from its reference."""
