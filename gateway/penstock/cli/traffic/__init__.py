"""Commands about the traffic of a running gateway: who is connected, what is recorded, and what goes by now."""
