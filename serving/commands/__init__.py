"""The commands that serve a model or make what a server needs, a module each. Import heavy modules when needed."""
