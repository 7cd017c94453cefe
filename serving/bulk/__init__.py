"""Classifies many photos on Ray with the model loaded in the workers, without a server.

inputs ─► files ─► tasks that read photos ─► actors with a loaded model ─► rows, as Parquet parts in a folder

Ray Data schedules the work, bounds its memory and repeats what failed. Inputs and rows are those of `client.bulk`.
"""
