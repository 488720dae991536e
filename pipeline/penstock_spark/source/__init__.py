"""The source `penstock`: streams of a gateway (or any server that speaks S2S, S3P or segments) as rows, batch and
streaming."""
