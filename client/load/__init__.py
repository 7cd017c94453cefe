"""Load on an endpoint: many calls, measured and checked.

generator ─► calls of any kind; target ─► calls to a model server; report, plot ◄─ what came of it
"""
