"""How Spark is run: settings (`config/pipeline.toml`), a session, Java found or its absence explained, progress
shown."""
