"""Runs one trial: its child process, its reports, and what its end means."""
