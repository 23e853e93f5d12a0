"""Run the trials of a sweep on Ray: driver process, actors, checks of a cluster."""
