"""Who may call what: bearer tokens, roles, models and rate limits. Knows no transport."""
