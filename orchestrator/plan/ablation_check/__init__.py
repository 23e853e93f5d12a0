"""Checks that every ablation arm differs from what it is compared with."""
