"""Proof that what was baked answers right: asked in a fresh process, compared, and written down beside the model.

questions ─► session (fresh process) ─► answers ─┬─► verification  against the network, on the graph's own pixels
                                                 ├─► parity        against the reference pipeline, from the files
                                                 └─► goldens       kept in the version, and its warm-up
"""
