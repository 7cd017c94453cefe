"""Optimisation: the traced network made smaller before it is baked, without changing what it answers.

The rewriting works on the graph, so it is the same for a Keras model, a SavedModel of TensorFlow 1 or 2 and a function
of the user's own. What it doesn't recognise stays as it is. It must know nothing of images or labels.

traced ─► one flat graph ─► steps, each of which may be left out ─► traced
"""

from savedmodel_bakery.exporter.optimisation.optimise import optimise

__all__ = ["optimise"]
