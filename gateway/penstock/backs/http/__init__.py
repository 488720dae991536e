"""An HTTP client for backs: HTTP/1.1 and HTTP/2, a pool of connections for each server, full duplex."""

from penstock.backs.http.client import HttpClient, Response
from penstock.backs.http.settings import HttpClientSettings, HttpVersion
from penstock.backs.http.stream import HttpStream

__all__ = ["HttpClient", "HttpClientSettings", "HttpStream", "HttpVersion", "Response"]
