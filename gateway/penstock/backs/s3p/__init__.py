"""S3P servers: the client side."""

from penstock.backs.s3p.native import S3PNative, open_s3p
from penstock.backs.s3p.settings import S3PBackSettings

__all__ = ["S3PBackSettings", "S3PNative", "open_s3p"]
