"""Statistics of differences paired by seed: intervals, p-values, verdicts and power."""
