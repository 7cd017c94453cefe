"""HTTP requests, responses and routes, for the port of REST and for every API that has its URLs there."""
