"""Entry point of `bakery` and of `python -m savedmodel_bakery`."""

from typing import NoReturn

from savedmodel_bakery.interrupts import handle_interrupts


def main(program: str = "bakery") -> NoReturn:
    """Run the command line and exit."""
    handle_interrupts()
    from savedmodel_bakery import command

    command.main(program=program)


if __name__ == "__main__":
    main("python -m savedmodel_bakery")
