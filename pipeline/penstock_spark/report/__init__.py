"""The report: one HTML file, which needs nothing beside it, with plots (SVG) and tables of what the jobs found."""
