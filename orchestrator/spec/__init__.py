"""What was asked, as written: YAML, overrides and profiles, read with every fault reported at once."""
