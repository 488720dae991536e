"""Position indexes: positions of a stream's records in the terms of all protocols, beyond those of its server."""
