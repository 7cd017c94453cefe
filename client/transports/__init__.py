"""One connection for each way of reaching a model server; each sends the calls of `client.calls`."""
