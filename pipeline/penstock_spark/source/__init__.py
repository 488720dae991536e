"""The source `penstock`: streams of a gateway (or any other server) as rows, for batch and streaming
queries."""
