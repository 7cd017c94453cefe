"""What the flags and the files they name ask for. Imports nothing heavy."""
