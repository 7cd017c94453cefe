"""Serve SavedModels as tensorflow_model_server does: its flags, its RPCs, its REST, its texts.

flags ─► configuration ─► storage ─► lifecycle ─► registry: name → version → servable
                                                     │
grpc, rest: parse ─► data_plane (no transport) ──────┘ ─► encode
"""
