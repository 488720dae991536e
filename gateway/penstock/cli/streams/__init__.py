"""Commands on the streams of any server."""
