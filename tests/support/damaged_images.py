"""Damaged image files for fuzzing: photos and small images of every format with bytes changed, cut or spliced."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator

import sampled_jpeg
from photos import labelled_photos
from PIL import Image

from savedmodel_bakery.exporter import resources


def corpus() -> list[bytes]:
    """Return the example photos, foolbox's 20 labelled photos, and small images of every format."""
    photos = labelled_photos()
    return [path.read_bytes() for path in (*resources.example_photos(), *photos)] + list(pictures().values())


def pictures() -> dict[str, bytes]:
    """Return small images, one file for each supported format and variant."""
    with Image.open(resources.folder("examples") / "rocket.jpg") as opened:
        photo = opened.convert("RGB").resize((61, 40))
    transparent, palette, rotated = photo.convert("RGBA"), photo.quantize(60), photo.rotate(180)
    transparent.putalpha(Image.linear_gradient("L").resize(photo.size))
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [rotated, photo]}
    return {
        "JPEG": _saved(photo, "JPEG", exif=exif),
        "JPEG, progressive": _saved(photo, "JPEG", progressive=True, exif=exif),
        "JPEG, gray": _saved(photo.convert("L"), "JPEG"),
        "JPEG, CMYK": _saved(photo.convert("CMYK"), "JPEG"),
        "JPEG, restart markers": _saved(photo, "JPEG", restart_marker_rows=1),
        "JPEG, sampled 4 by 2": sampled_jpeg.encode([(4, 2), (1, 1), (1, 1)], 157, 148),
        "PNG": _saved(photo, "PNG", exif=exif),
        "PNG, alpha": _saved(transparent, "PNG", exif=exif),
        "PNG, 16 bit": _saved(photo.convert("L").convert("I;16"), "PNG"),
        "PNG, palette": _saved(palette, "PNG", transparency=3),
        "GIF": _saved(palette, "GIF", transparency=3),
        "GIF, interlaced": _saved(palette, "GIF", interlace=True),
        "GIF, animated": _saved(photo, "GIF", **frames),
        "BMP": _saved(photo, "BMP"),
        "BMP, palette": _saved(palette, "BMP"),
        "BMP, 32 bit": _saved(transparent, "BMP"),
        "WebP": _saved(photo, "WEBP"),
        "WebP, alpha": _saved(transparent, "WEBP", exif=exif),
        "WebP, lossless": _saved(transparent, "WEBP", lossless=True),
        "WebP, animated": _saved(photo, "WEBP", **frames),
        "WebP, animated and lossless": _saved(transparent, "WEBP", lossless=True, **frames),
    }


def _saved(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def damaged(files: list[bytes], seed: int) -> Iterator[bytes]:
    """Yield damaged files without end, the same sequence for the same seed."""
    rng = random.Random(seed)
    while True:
        data = bytearray(rng.choice(files))
        for _ in range(rng.choice([1, 1, 2, 3])):
            rng.choice(_DAMAGES)(data, files, rng)
        yield rng.choice(_ENCODINGS)(bytes(data))


def _flip(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    for _ in range(rng.choice([1, 2, 8, 64])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _forge_header(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    for _ in range(rng.choice([1, 2, 4])):
        if data:
            data[rng.randrange(min(len(data), 64))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])


def _forge_number(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    size = rng.choice([2, 4])
    at = rng.randrange(min(len(data), 700) + 1)
    value = rng.choice([0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, len(data), rng.randrange(2**16)])
    data[at : at + size] = (value % 256**size).to_bytes(size, rng.choice(["little", "big"]))  # type: ignore[arg-type]


def _cut(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _cut_out(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice([1, 2, 100, 5000])]


def _repeat(data: bytearray, _: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    part = data[at : at + rng.choice([1, 4, 30, 1000])]
    data[at:at] = part * rng.choice([1, 2, 50])


def _splice(data: bytearray, files: list[bytes], rng: random.Random) -> None:
    other = rng.choice(files)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other)) :]


def _forge_magic(data: bytearray, files: list[bytes], rng: random.Random) -> None:
    other = rng.choice(files)
    size = rng.choice([4, 12, 30])
    data[:size] = other[:size]


_DAMAGES = (_flip, _flip, _forge_header, _forge_number, _cut, _cut_out, _repeat, _splice, _forge_magic)
_ENCODINGS = (
    *[bytes] * 6,
    base64.b64encode,
    base64.urlsafe_b64encode,
    lambda data: base64.b64encode(data)[: len(data)],
    lambda data: b"data:image/png;base64," + base64.b64encode(data),
)
