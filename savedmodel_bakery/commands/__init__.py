"""The commands that belong to more than one package: each joins those of the client, the server and Ray."""
