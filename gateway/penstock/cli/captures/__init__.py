"""The commands that look at captures."""
