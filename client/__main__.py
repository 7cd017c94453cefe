"""`python -m client`."""

from client.cli import main

if __name__ == "__main__":
    main()
