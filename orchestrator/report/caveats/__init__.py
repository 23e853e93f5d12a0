"""What a reader must know beside the numbers: warnings, scope of intervals, notes."""
