"""Callbacks for other training libraries. Each module is named after the library that the module imports."""
