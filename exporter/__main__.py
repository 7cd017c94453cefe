"""Entry point of `python -m exporter` in a clone, and of `python -m savedmodel_bakery.exporter`."""

from savedmodel_bakery.interrupts import exit_on_interrupt

if __name__ == "__main__":
    with exit_on_interrupt():
        from savedmodel_bakery.exporter.cli import main
    main()
