"""Serves SavedModels with tensorflow_model_server's flags, RPCs, REST API and error texts.

options ─► models: storage ─► lifecycle ─► registry: name → version → servable
                                              │
grpc, rest, amqp: codec ─► inference ─────────┘ ─► codec
"""
