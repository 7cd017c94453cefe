"""What a model returns for photos: its signatures and tasks, and their results as objects, rows, text and drawings.

`photo_files` finds the photos of a job. Knows no network and no TensorFlow.
"""
