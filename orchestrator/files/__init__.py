"""File handling: digests, redaction, JSON values, SQLite URLs, and removal of abandoned files."""
