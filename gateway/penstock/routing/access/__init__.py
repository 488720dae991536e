"""Authorization: access tokens and scopes, passwords, delegation tokens; see docs/access.md."""
