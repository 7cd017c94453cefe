"""Files as they should not be: real photos and pictures of every format with bytes changed, cut, spliced and forged."""

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
    """The example photos, the 20 labelled photos that foolbox carries, and small pictures of every kind."""
    photos = labelled_photos()
    return [path.read_bytes() for path in (*resources.example_photos(), *photos)] + list(pictures().values())


def pictures() -> dict[str, bytes]:
    """Small pictures, a file of each kind that is read."""
    with Image.open(resources.folder("examples") / "rocket.jpg") as opened:
        photo = opened.convert("RGB").resize((61, 40))
    clear, palette, turned = photo.convert("RGBA"), photo.quantize(60), photo.rotate(180)
    clear.putalpha(Image.linear_gradient("L").resize(photo.size))
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [turned, photo]}
    return {
        "JPEG": _saved(photo, "JPEG", exif=exif),
        "JPEG, progressive": _saved(photo, "JPEG", progressive=True, exif=exif),
        "JPEG, gray": _saved(photo.convert("L"), "JPEG"),
        "JPEG, CMYK": _saved(photo.convert("CMYK"), "JPEG"),
        "JPEG, restart markers": _saved(photo, "JPEG", restart_marker_rows=1),
        "JPEG, sampled 4 by 2": sampled_jpeg.encode([(4, 2), (1, 1), (1, 1)], 157, 148),
        "PNG": _saved(photo, "PNG", exif=exif),
        "PNG, alpha": _saved(clear, "PNG", exif=exif),
        "PNG, 16 bit": _saved(photo.convert("L").convert("I;16"), "PNG"),
        "PNG, palette": _saved(palette, "PNG", transparency=3),
        "GIF": _saved(palette, "GIF", transparency=3),
        "GIF, interlaced": _saved(palette, "GIF", interlace=True),
        "GIF, animated": _saved(photo, "GIF", **frames),
        "BMP": _saved(photo, "BMP"),
        "BMP, palette": _saved(palette, "BMP"),
        "BMP, 32 bit": _saved(clear, "BMP"),
        "WebP": _saved(photo, "WEBP"),
        "WebP, alpha": _saved(clear, "WEBP", exif=exif),
        "WebP, lossless": _saved(clear, "WEBP", lossless=True),
        "WebP, animated": _saved(photo, "WEBP", **frames),
        "WebP, animated and lossless": _saved(clear, "WEBP", lossless=True, **frames),
    }


def _saved(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def damaged(files: list[bytes], seed: int) -> Iterator[bytes]:
    """Damaged files without end, the same ones for the same seed."""
    chance = random.Random(seed)
    while True:
        data = bytearray(chance.choice(files))
        for _ in range(chance.choice([1, 1, 2, 3])):
            chance.choice(_WAYS)(data, files, chance)
        yield chance.choice(_SPELLINGS)(bytes(data))


def _flip(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    for _ in range(chance.choice([1, 2, 8, 64])):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _forge_header(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    for _ in range(chance.choice([1, 2, 4])):
        if data:
            data[chance.randrange(min(len(data), 64))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])


def _forge_number(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    size = chance.choice([2, 4])
    at = chance.randrange(min(len(data), 700) + 1)
    value = chance.choice([0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, len(data), chance.randrange(2**16)])
    data[at : at + size] = (value % 256**size).to_bytes(size, chance.choice(["little", "big"]))  # type: ignore[arg-type]


def _cut(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _cut_out(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.choice([1, 2, 100, 5000])]


def _repeat(data: bytearray, _: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    part = data[at : at + chance.choice([1, 4, 30, 1000])]
    data[at:at] = part * chance.choice([1, 2, 50])


def _splice(data: bytearray, files: list[bytes], chance: random.Random) -> None:
    other = chance.choice(files)
    data[chance.randrange(len(data) + 1) :] = other[chance.randrange(len(other)) :]


def _forge_magic(data: bytearray, files: list[bytes], chance: random.Random) -> None:
    other = chance.choice(files)
    size = chance.choice([4, 12, 30])
    data[:size] = other[:size]


_WAYS = (_flip, _flip, _forge_header, _forge_number, _cut, _cut_out, _repeat, _splice, _forge_magic)
_SPELLINGS = (
    *[bytes] * 6,
    base64.b64encode,
    base64.urlsafe_b64encode,
    lambda data: base64.b64encode(data)[: len(data)],
    lambda data: b"data:image/png;base64," + base64.b64encode(data),
)
