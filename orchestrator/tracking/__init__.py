"""Projections of the ledger: MLflow runs and Parquet files, rebuildable at any time."""
