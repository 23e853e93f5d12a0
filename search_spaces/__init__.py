"""Search spaces: dimensions, the conditions under which they exist, and built-in spaces."""
