"""Project the ledger to MLflow runs and Parquet files, which can be rebuilt at any time."""
