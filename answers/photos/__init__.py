"""The photos of a job: `files` (paths) → `sources` (a photo, an archive, a Parquet file) → `photo` (one photo)."""
