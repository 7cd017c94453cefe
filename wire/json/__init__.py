"""Messages as the JSON of the REST API. Both roles: what a server reads and writes, and what a client does."""
