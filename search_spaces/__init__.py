"""What may vary: dimensions, the conditions under which they exist, and ready-made spaces."""
