"""What commands use by default, and their messages or the library too."""

DEFAULT_MODEL = "efficientnet_lite0"
"""The model of `make demo`."""

TOKEN_VARIABLE = "BAKERY_CLIENT_TOKEN"
"""Environment variable with the token of the command-line programs; the library does not read it."""

SEARCH_S = 120.0
"""How long the search for a recipe may take, in wall-clock time."""
