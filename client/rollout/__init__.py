"""Changes which version of a model answers, by editing the config file of model servers. See `commands.rollout`.

`config_text` edits one model in the text of a config file, `config_file` reads and replaces the file, `steps` decides
what to change, and `rollout` puts it into effect on `servers`.
"""


class RolloutError(Exception):
    """The rollout was refused, or a server did not do what it must; the text is a sentence for people."""


class ConfigError(RolloutError):
    """The config file, or the model in it, is not valid for a rollout."""
