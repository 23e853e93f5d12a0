"""Building blocks of models: attention, positions, blocks, halting, dropout."""
