"""The page in which a person tries the models of a server: its files and their URLs. The page itself calls the APIs."""
