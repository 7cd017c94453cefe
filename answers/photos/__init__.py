"""The photos of a job: `files` (paths, archives, Parquet files) → `photo` (one photo)."""
