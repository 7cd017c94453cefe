"""The recipe of a bake; options, TOML and documentation are generated from its fields. Doesn't import TensorFlow."""

from savedmodel_bakery.exporter.recipe.batching import Batching
from savedmodel_bakery.exporter.recipe.optimisation import OPTIMISATIONS, Optimisation
from savedmodel_bakery.exporter.recipe.preprocessing import LETTERBOX, RESIZE_METHODS, SCALES, Preprocessing
from savedmodel_bakery.exporter.recipe.recipe import Recipe, complete_recipe
from savedmodel_bakery.exporter.recipe.source import Source
from savedmodel_bakery.exporter.recipe.toml import read_toml

__all__ = [
    "LETTERBOX",
    "OPTIMISATIONS",
    "RESIZE_METHODS",
    "SCALES",
    "Batching",
    "Optimisation",
    "Preprocessing",
    "Recipe",
    "Source",
    "complete_recipe",
    "read_toml",
]
