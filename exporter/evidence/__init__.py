"""Evidence of how photos were prepared in training, and the recipe that follows from it."""
