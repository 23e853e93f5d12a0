"""Create reports (tables, intervals and figures) from the records of a sweep."""
