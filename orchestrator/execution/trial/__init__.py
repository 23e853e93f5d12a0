"""Run one trial: its child process, its reports, and the meaning of its end."""
