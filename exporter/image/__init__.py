"""The image graph: from any spelling of an image file to the pixels a network sees, in stock TensorFlow operations.

Everything here is traced into the SavedModel and runs, image by image, inside the request that brought it. It must
not use custom operations or Python callbacks, or a stock tensorflow_model_server could not run it.
"""
