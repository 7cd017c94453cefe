"""Entry point of `python -m client` in a clone, and of `python -m savedmodel_bakery.client`."""

from savedmodel_bakery.interrupts import handle_interrupts

if __name__ == "__main__":
    handle_interrupts()
    from savedmodel_bakery.client.commands.cli import main

    main()
