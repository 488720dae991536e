"""S3P servers: the client side."""

from penstock_s3p.back.native import S3PNative, open_s3p
from penstock_s3p.back.settings import S3PBackSettings

__all__ = ["S3PBackSettings", "S3PNative", "open_s3p"]
