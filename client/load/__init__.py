"""Load tests: many calls at a time, each measured and its response checked."""
