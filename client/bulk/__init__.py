"""Bulk jobs: classify many photos and write one row per photo.

`files` → `sources` (the `photos` of a file, an archive or a Parquet file) → `job` (several concurrent requests, by
`classify`) → `rows` → `results`. `job` needs a server; the other modules do not, and jobs on Ray use them too.
"""
