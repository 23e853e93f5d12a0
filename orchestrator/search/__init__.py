"""Parts of a search: samplers, early stoppers, search spaces, importance of dimensions."""
