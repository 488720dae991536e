"""Mirroring of a route to a second back: copying its streams, comparing them record by record, and cutting over."""
