"""The segment protocol's client for the source, the sink and the jobs."""
