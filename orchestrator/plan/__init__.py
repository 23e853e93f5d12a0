"""Plan a sweep from its spec: arms, ablation checks, trials with ids and cost estimates."""
