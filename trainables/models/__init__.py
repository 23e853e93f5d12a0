"""One file a model; the file name is the name in a spec. Private helpers begin with an underscore."""
