"""`python -m client`."""

from savedmodel_bakery.client.commands.cli import main

if __name__ == "__main__":
    main()
