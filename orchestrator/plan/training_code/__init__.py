"""What the planner asks of training code, built-in or custom."""
