"""Entry point of `python -m exporter`."""

import sys

try:
    from savedmodel_bakery.exporter.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"error: the exporter needs {error.name}, which is not installed; try: pip install 'savedmodel-bakery[export]'"
    )

if __name__ == "__main__":
    main()
