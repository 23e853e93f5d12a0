"""What a search is made of: samplers, early stoppers, search spaces, importance of dimensions."""
