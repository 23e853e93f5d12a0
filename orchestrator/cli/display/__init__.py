"""Shows values on a terminal: tables, progress, waiting."""
