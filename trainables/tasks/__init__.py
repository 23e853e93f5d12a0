"""One file a task; the file name is the name in a spec. Private helpers begin with an underscore."""
