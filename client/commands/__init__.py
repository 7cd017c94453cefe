"""The command line: options, subcommands and what they print."""
