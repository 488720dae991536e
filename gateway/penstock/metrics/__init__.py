"""What the gateway counts and measures, in the words of Prometheus."""
