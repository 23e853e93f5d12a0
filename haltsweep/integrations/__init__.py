"""Callbacks for other training libraries; each module is named after the library that it imports."""
