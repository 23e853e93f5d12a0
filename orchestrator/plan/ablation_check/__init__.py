"""Whether an ablation arm differs from what it is compared with."""
