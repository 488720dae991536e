"""S3P in captures: commands and replies as messages and records, and where secrets are in them (S3P 0.2.0)."""
