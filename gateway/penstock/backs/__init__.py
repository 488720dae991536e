"""Backs carry operations out: the embedded store now, servers of each protocol next."""
