"""The parts of the HTTP server (`penstock.net.http.serving`)."""
