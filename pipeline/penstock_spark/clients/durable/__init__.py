"""The client of Durable Streams for the source, the sink and the jobs."""
