"""Mock servers, which replay the server's side of a recording to live clients: `penstock mock`."""
