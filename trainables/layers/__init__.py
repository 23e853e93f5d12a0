"""Parts that models are made of: attention, positions, blocks, halting, dropout."""
