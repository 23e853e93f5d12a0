"""Callbacks for other training libraries; each module imports the library that it is named for."""
