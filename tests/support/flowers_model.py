"""A program that saves a Keras model with two classes as flowers.keras, and the labels of the classes."""

PROGRAM = """
import keras
keras.utils.set_random_seed(0)
layers = [keras.layers.Input((32, 32, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2, "softmax")]
keras.Sequential(layers).save("flowers.keras")
"""
LABELS = "daisy\ntulip\n"
