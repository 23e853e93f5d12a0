"""Draw the figures of a report."""
