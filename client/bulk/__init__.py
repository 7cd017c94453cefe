"""Bulk jobs on a server: send many photos, several requests at a time (`job`), and keep a row per photo (`results`)."""
