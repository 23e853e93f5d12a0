"""Write a report: terminal, Markdown, HTML page, JSON, CSV, LaTeX."""
