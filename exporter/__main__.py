"""Entry point of `python -m exporter` in a clone, and of `python -m savedmodel_bakery.exporter`."""

from savedmodel_bakery.interrupts import handle_interrupts

if __name__ == "__main__":
    handle_interrupts()
    from savedmodel_bakery.exporter.commands.cli import main

    main()
