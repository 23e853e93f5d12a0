"""Write the ledger to MLflow, check and remove the runs, and serve the MLflow UI."""
