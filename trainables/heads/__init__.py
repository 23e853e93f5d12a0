"""Predictions from encoded states, with their losses and accuracies."""
