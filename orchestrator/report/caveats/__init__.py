"""Create the caveats of a report: warnings, scope of intervals, notes."""
