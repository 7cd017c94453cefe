"""Entry point of `python -m serving` in a clone, and of `python -m savedmodel_bakery.serving`."""

from savedmodel_bakery.interrupts import exit_on_interrupt

if __name__ == "__main__":
    with exit_on_interrupt():
        from savedmodel_bakery.serving.cli import main
    main(program=f"python -m {__package__}")
