"""What is done where a protocol cannot carry something."""
