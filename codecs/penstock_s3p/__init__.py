"""S3P as a plug-in of Penstock: its codec, captures, front, back and conformance suite."""
