"""The job of `python -m client classify` on Ray: the servable comes to the photos.

inputs ─► files ─► tasks that read photos ─► actors that each hold the servable ─► rows, as Parquet parts in a folder

Ray Data schedules, bounds memory, and does again what died. What is read and written is `client.bulk`'s.
"""
