"""What differences paired by seed say: one procedure for intervals, p values and verdicts, and its power."""
