"""Entry point of `python -m exporter`."""

from savedmodel_bakery.exporter.cli import main

if __name__ == "__main__":
    main()
