"""The image graph: from the bytes a client sends to the pixels of the network's input, in stock TensorFlow operations.

Everything here is traced into the SavedModel and runs per image, inside the request. It must not use custom operations
or Python callbacks: a stock tensorflow_model_server could not run them.
"""
