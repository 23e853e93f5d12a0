"""Check that a search can vary the fields that its spec lists."""
