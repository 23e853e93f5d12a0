"""Interface between the planner and training code, built-in or custom."""
