"""Attention: its kernels, what chooses among them, and the kinds of attention built on them."""
