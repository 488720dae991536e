"""S2 in captures: its requests and bodies over HTTP, as messages and records, and where secrets are in them."""
