"""Front and back for S2: S2S sessions, server-sent events and REST."""
