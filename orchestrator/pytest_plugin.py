"""`pytest --haltsweep FOLDER`: every spec is a test item that is planned, proved and trained for one step."""
