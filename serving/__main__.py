"""Entry point of `python -m serving`."""

from savedmodel_bakery.serving.models import memory

if __name__ == "__main__":
    memory.start_with_huge_pages()  # before more is imported, as that would be for nothing

    from savedmodel_bakery.serving.cli import main

    main()
