"""Run user code in child processes of a server process that runs no trial itself."""
