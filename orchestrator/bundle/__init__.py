"""Bundle a sweep into one archive, and check such an archive before it is read."""
