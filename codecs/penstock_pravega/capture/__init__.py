"""The segment protocol in captures, both dialects: messages, events, and where secrets are in them."""
