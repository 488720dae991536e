"""Front and back for S3P."""
