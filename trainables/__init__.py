"""What is trained: models, layers, tasks and the training loop. Imports without Ray, Optuna or MLflow."""
