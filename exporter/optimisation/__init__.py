"""Optimises a traced network before it is saved, without changing its answers.

Works on the graph, so it handles Keras models, SavedModels of TensorFlow 1 and 2, and functions alike. Nodes that it
doesn't recognise stay unchanged. Knows nothing about images or labels.

traced network ─► flat graph ─► optional steps ─► traced network
"""

from savedmodel_bakery.exporter.optimisation.int8.quantise import Coverage, Speed, compare_speed
from savedmodel_bakery.exporter.optimisation.optimise import optimise, optimise_int8

__all__ = ["Coverage", "Speed", "compare_speed", "optimise", "optimise_int8"]
