"""Shows plans as text."""
