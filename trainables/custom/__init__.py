"""Run functions, classes and scripts of users as trainables: find, seed and execute them."""
