"""Entry point of `python -m serving`."""

from serving.cli import main

if __name__ == "__main__":
    main()
