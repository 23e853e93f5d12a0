"""Display plans as text."""
