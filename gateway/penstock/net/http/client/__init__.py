"""An HTTP client for backs: HTTP/1.1 and HTTP/2, full duplex, with a pool of connections for each server."""

from penstock.net.http.client.client import HttpClient, Response
from penstock.net.http.client.connection import HttpStream
from penstock.net.http.client.settings import HttpClientSettings, HttpVersion

__all__ = ["HttpClient", "HttpClientSettings", "HttpStream", "HttpVersion", "Response"]
