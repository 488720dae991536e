"""Who may do what: access tokens and scopes, passwords, the segment protocol's delegation tokens; docs/access.md."""
