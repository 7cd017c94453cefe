"""Messages of the v2 protocol (Open Inference Protocol), in both roles: those of a client and those of a server.

Contains codecs only: JSON with binary tensor data for HTTP, protobuf for gRPC. Does no I/O.
"""
