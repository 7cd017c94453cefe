"""Entry point of `python -m savedmodel_bakery`."""

from savedmodel_bakery.command import main

if __name__ == "__main__":
    main(program="python -m savedmodel_bakery")
