"""Finds versions on disk, loads and unloads them, and selects the one that serves a request."""
