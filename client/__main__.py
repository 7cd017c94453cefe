"""Entry point of `python -m client` in a clone, and of `python -m savedmodel_bakery.client`."""

from savedmodel_bakery.client.commands.cli import main

if __name__ == "__main__":
    main()
