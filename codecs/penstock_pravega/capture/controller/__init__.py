"""The controller's gRPC calls in captures: as messages, and where secrets are in them."""
