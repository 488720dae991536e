"""The S3P front: S3P 0.2.0 over byte streams, on top of any back that keeps record identifiers."""

from penstock_s3p.front.front import S3PFront, refuse_s3p, serve_s3p
from penstock_s3p.front.settings import S3PSettings

__all__ = ["S3PFront", "S3PSettings", "refuse_s3p", "serve_s3p"]
