"""S2's messages as JSON and protobuf, with their limits and errors; its framings are in `s2s` and `sse`."""
