"""Functions, classes and scripts of anybody as trainables: how they are found, run and seeded."""
