"""Models on disk and in memory: which versions exist, which are loaded, and which one a request gets."""
