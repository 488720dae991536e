"""The server of a recording, played for its clients again: `penstock mock`."""
