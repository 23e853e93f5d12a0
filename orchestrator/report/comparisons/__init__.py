"""Compare arms: differences, intervals and verdicts, and the tables that present them."""
