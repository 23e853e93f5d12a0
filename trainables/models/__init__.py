"""One file a model; the file name is the name in a spec. What only models share is private: `_x.py`."""
