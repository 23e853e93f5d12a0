"""Writes the ledger to MLflow, checks and removes what was written, and serves its UI."""
