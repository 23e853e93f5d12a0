"""What makes examples: the sampling that tasks share, from named random streams. Reads no files."""
