"""An HTTP client for backs: HTTP/1.1 and HTTP/2, a pool of connections for each server, full duplex."""

from penstock.backs.http.settings import HttpClientSettings, HttpVersion

__all__ = ["HttpClientSettings", "HttpVersion"]
