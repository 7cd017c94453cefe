"""Entry point of `python -m exporter` in a clone, and of `python -m savedmodel_bakery.exporter`."""

from savedmodel_bakery.exporter.cli import main

if __name__ == "__main__":
    main()
