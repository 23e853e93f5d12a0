"""A model, a task and a search space of an external package."""
