"""Measurements, none of which is a test.

`python -m benchmarks` compares ways of serving one network:
contestants ─► servers, generator ─► measure ─► report ─► publish
"""
