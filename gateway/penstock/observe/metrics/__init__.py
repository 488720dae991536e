"""The gateway's metrics, in the terms of Prometheus."""
