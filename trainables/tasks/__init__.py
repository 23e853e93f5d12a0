"""One file a task; the file name is the name in a spec."""
