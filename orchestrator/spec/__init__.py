"""Read specs: YAML files, overrides and profiles, with all faults reported together."""
