"""Runs code of users in child processes of a clean server process."""
