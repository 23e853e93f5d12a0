"""Run the trials of a sweep with Ray Tune, on one machine or a cluster, or without Ray in this process."""
