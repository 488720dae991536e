"""The source `penstock`: streams of a gateway, or another S2S server, as rows, for batch and streaming queries."""
