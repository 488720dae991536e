"""Analysis of captured bytes: the capture format, conversations as messages and records, and redaction of secrets."""
