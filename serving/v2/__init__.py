"""The v2 protocol (Open Inference Protocol) on both ports: a codec around the inference core, as REST and gRPC are.

The servers of the ports mount its URLs and its calls; `serving/server.py` connects them.
"""
