"""Benchmarks; none of them is a test.

`python -m benchmarks` compares ways to serve one network:
candidates ─► servers, generator ─► measure ─► report ─► publish
`python -m benchmarks.calls` measures what a call costs, and compares checkouts:
workloads ─► servers, client ─► calls
`python -m benchmarks.gpu` measures the options for a GPU, as the first one does, and with `devices` in one process.
"""
