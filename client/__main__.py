"""Entry point of `python -m client` in a clone, and of `python -m savedmodel_bakery.client`."""

from savedmodel_bakery.interrupts import exit_on_interrupt

if __name__ == "__main__":
    with exit_on_interrupt():
        from savedmodel_bakery.client.commands.cli import main
    main()
