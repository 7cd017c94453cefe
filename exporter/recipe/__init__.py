"""The recipe of a bake; options, TOML and documentation are generated from its fields. Doesn't import TensorFlow."""

from savedmodel_bakery.exporter.recipe.execution import OPTIMISATIONS, Batching, Optimisation
from savedmodel_bakery.exporter.recipe.model import Answers, Source
from savedmodel_bakery.exporter.recipe.preprocessing import LETTERBOX, RESIZE_METHODS, SCALES, Preprocessing
from savedmodel_bakery.exporter.recipe.recipe import (
    Recipe,
    RecipeFile,
    complete_recipe,
    convert_values,
    read_recipe_file,
)

__all__ = [
    "LETTERBOX",
    "OPTIMISATIONS",
    "RESIZE_METHODS",
    "SCALES",
    "Answers",
    "Batching",
    "Optimisation",
    "Preprocessing",
    "Recipe",
    "RecipeFile",
    "Source",
    "complete_recipe",
    "convert_values",
    "read_recipe_file",
]
