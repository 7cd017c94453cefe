"""Quantises the convolutions of a network to 8-bit integers, for the oneDNN kernels of TensorFlow's CPU builds.

Every quantised activation is quint8: x = low + code · (high − low) / 255. Weights are int8, symmetric, with a scale per
output channel. A convolution adds up x − low, so the low of its input, and that of its output, are part of its bias.
Relu and Relu6 are the saturation of its output at the codes 0 and 255.

images ─► ranges ┐
graph ─► units ──┴─► conversion ─► graph with quantised units
"""
