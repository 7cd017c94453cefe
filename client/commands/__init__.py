"""The command line: one module per command. They import numpy and the network libraries only when a command runs."""
