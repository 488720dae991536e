"""Commands about the traffic of a running gateway: its connections, recordings and messages."""
