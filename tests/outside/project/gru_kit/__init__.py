"""A model, a task and a search space of somebody else."""
