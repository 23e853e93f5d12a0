"""Attention: its kernels, the choice among them, and the kinds of attention built on them."""
