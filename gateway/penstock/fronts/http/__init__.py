"""The parts of the HTTP server; see `penstock.fronts.http_server`."""
