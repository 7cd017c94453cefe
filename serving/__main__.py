"""Entry point of `python -m serving` in a clone, and of `python -m savedmodel_bakery.serving`."""

from savedmodel_bakery.interrupts import handle_interrupts

if __name__ == "__main__":
    handle_interrupts()
    from savedmodel_bakery.serving.commands.model_server import main

    main(program=f"python -m {__package__}")
