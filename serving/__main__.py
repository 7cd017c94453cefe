"""Entry point of `python -m serving`."""

from savedmodel_bakery.serving.cli import main

if __name__ == "__main__":
    main()
