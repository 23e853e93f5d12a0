"""One module per command of `haltsweep`."""
