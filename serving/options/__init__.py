"""Command-line flags and the configuration files they name. Imports neither TensorFlow nor gRPC."""
