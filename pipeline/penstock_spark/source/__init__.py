"""The source `penstock`: streams of a gateway (or any server of S2S, S3P or segments) as rows, for batch and streaming
queries."""
