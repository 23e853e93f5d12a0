"""Tables, intervals and figures, recomputable for ever from records."""
