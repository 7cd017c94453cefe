"""REST: a codec around the inference core. Decodes JSON requests, encodes JSON responses, maps errors to HTTP."""
