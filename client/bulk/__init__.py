"""Many photos: where they lie, what is asked about them, and the rows that come of it.

files ─► photos: one a file, many an archive ─► job: batches of them, asked by several callers ─► rows ─► results

`files`, `photos` and `rows` know no server; `python -m serving batch` runs the same photos to the same rows.
"""
