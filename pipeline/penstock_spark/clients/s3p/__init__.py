"""The S3P client for the source and the jobs."""
