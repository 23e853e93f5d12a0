"""Generate examples from named random streams, with code that tasks share. Reads no files."""
