"""Display tables, progress and waiting on a terminal."""
