"""Define one task per file; the file name is the task's name in a spec."""
