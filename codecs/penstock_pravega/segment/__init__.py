"""Front and back for Pravega's segment protocol."""
