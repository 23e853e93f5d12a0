"""Store, check and delete the checkpoints of trials."""
