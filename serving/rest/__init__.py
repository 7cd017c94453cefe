"""REST: an HTTP request to values, one call of the data plane, values to JSON."""
