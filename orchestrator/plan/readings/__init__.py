"""Re-evaluation of trained models under other settings, and comparison with published values."""
