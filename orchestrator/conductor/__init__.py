"""Decides everything and does nothing: phases, budgets, one sampler and one early stopper per arm."""
