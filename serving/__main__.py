"""Entry point of `python -m serving` in a clone, and of `python -m savedmodel_bakery.serving`."""

from savedmodel_bakery.serving.cli import main

if __name__ == "__main__":
    main(program=f"python -m {__package__}")
