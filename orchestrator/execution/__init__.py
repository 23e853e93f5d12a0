"""Feed the conductor: Ray Tune on a laptop or a cluster, or this very process."""
