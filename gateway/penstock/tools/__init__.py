"""Tools for recordings: replay as the clients, mock as the server, comparison, and what Wireshark needs.

The package stands above `app`, since a replay may start its own gateway.
"""
