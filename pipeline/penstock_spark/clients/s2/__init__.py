"""S2 over HTTP/1.1: reads and appends as S2S sessions, all other calls as single requests (S2 fact sheet, 1 and 2)."""
