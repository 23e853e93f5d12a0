"""Re-evaluation of trained models under other settings."""
