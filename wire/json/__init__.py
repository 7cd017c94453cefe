"""The JSON of the REST API, in both roles: what a client writes and reads, and what a server reads and writes."""
