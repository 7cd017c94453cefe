"""Changes which version of a model answers, by editing the config file of model servers. See `commands.rollout`.

`text_fields` finds fields in the text of a config file, `config_text` edits one model in it, `config_file` reads and
replaces the file, `steps` decides what to change, and `rollout` puts it into effect on `servers`.
"""
