"""The S3P client for the source and the jobs."""

from penstock_spark.clients.s3p.client import S3PStreams

__all__ = ["S3PStreams"]
