"""Traffic recorder: taps on connections, recordings that select what they record, capture files and live listeners."""
