"""Names that commands use by default, and that their messages mention."""

DEFAULT_MODEL = "efficientnet_lite0"
"""The model of `make demo`."""

TOKEN_VARIABLE = "BAKERY_CLIENT_TOKEN"
"""Environment variable with the token of the command-line programs; the library does not read it."""
