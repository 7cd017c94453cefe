"""Photos as bodies of HTTP requests: runs a baked model on them and returns its results as JSON. Has no sockets."""
