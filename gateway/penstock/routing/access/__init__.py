"""Authorization: access tokens and scopes, passwords, the segment protocol's delegation tokens; see docs/access.md."""
