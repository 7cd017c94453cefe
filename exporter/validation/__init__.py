"""Validates a SavedModel before it is published, and records the results in it.

requests ─► session (fresh process) ─► responses ─┬─► agreement  with the network, on the graph's own pixels
                                                  ├─► parity     with the reference pipeline, from the photo files
                                                  └─► goldens    recorded in the version, with its warm-up requests
"""
