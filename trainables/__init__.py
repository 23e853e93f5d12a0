"""Models, layers, tasks and the training loop. Imports neither Ray nor Optuna nor MLflow."""
