"""The traffic recorder: taps on connections, recordings that want what they hear, files and live listeners."""
