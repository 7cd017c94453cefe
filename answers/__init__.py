"""What a model returns for photos: its signatures and tasks, and their results as objects, rows, text and drawings.

`photos` finds and reads the photos of a job. Knows no network and no TensorFlow.
"""
