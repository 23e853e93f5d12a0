"""Decide which trials run, stop and are confirmed: phases, budgets, samplers and early stoppers.

This package performs no I/O and starts no trial.
"""
