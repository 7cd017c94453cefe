"""Files that travel with the exporter: label sets and example photos."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def folder(name: str) -> Path:
    """The folder `labels` or `examples`: inside the package in a wheel, beside it in a clone."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def example_photos() -> list[Path]:
    """The CC0 photos that every bake is verified on."""
    return sorted(path for path in folder("examples").iterdir() if path.suffix in (".jpg", ".png"))
