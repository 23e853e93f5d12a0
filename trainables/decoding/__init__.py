"""Generate answers token by token, greedily or by beam search."""
