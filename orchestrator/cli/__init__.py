"""The `haltsweep` command."""
