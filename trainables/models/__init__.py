"""One file per model, named as in a spec; modules that only models share are private (`_x.py`)."""
