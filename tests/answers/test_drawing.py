"""Boxes and maps on photos."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery import Box, Detections, Keypoint, Keypoints, Segmentation
from savedmodel_bakery.answers.drawing import label_colour, palette_colour
from savedmodel_bakery.answers.tasks.keypoints import KEYPOINTS
from savedmodel_bakery.answers.tasks.regions import DETECT, SEGMENT


def png(array: np.ndarray, exif: Image.Exif | None = None) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG", exif=exif)
    return file.getvalue()


def pixels(content: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content)))


def test_each_label_has_its_colour() -> None:
    boxes = (Box("cat", 0.9, 50, 10, 90, 60), Box("dog", 0.8, 50, 110, 90, 160), Box("cat", 0.7, 50, 210, 90, 260))
    drawn = pixels(DETECT.draw(png(np.zeros((100, 300, 3), np.uint8)), Detections(True, None, boxes), {}))
    assert (100, 300, 3) == drawn.shape
    cat, dog = label_colour("cat"), label_colour("dog")
    assert cat != dog
    for edge in ((90, 40), (70, 10), (70, 60), (90, 230)):
        assert cat == tuple(drawn[edge])
    assert dog == tuple(drawn[90, 130])
    assert (0, 0, 0) == tuple(drawn[75, 40]) == tuple(drawn[75, 80])


def test_a_box_beyond_the_photo_is_drawn_as_far_as_it_is_visible() -> None:
    boxes = (Box("cat", 0.9, -5.5, -3, 200, 50), Box("odd", 0.1, 9, 9, 2, 2))
    drawn = pixels(DETECT.draw(png(np.zeros((40, 60, 3), np.uint8)), Detections(True, None, boxes), {}))
    assert label_colour("cat") == tuple(drawn[30, 50])


def test_boxes_are_drawn_on_the_upright_photo() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    drawn = pixels(DETECT.draw(png(np.zeros((20, 50, 3), np.uint8), exif), Detections(True, None), {}))
    assert (50, 20, 3) == drawn.shape


def test_masks_are_translucent() -> None:
    """That of the best box is above the others. The photo is turned upright, so that it has the size of its masks."""
    exif = Image.Exif()
    exif[0x0112] = 6
    size, colours = (3, 4), {"cat": (255, 0, 0), "dog": (0, 255, 0)}
    boxes = (Box("cat", 0.9, 9, 9, 9, 9, "42102", size), Box("dog", 0.8, 9, 9, 9, 9, "0<", size))
    photo = png(np.full((4, 3, 3), 100, np.uint8), exif)
    drawn = pixels(DETECT.draw(photo, Detections(True, None, boxes), colours)).astype(int)
    assert (3, 4, 3) == drawn.shape
    np.testing.assert_allclose([50, 177, 50], drawn[0, 3], atol=1)
    np.testing.assert_allclose([152, 88, 25], drawn[2, 1], atol=1)
    other = Box("cat", 0.9, 0, 0, 1, 1, "<", (4, 3))
    with pytest.raises(ValueError, match="the mask has 3×4 pixels, but the photo 4×3"):
        DETECT.draw(photo, Detections(True, None, (other,)), {})


def test_a_photo_of_16_bits_is_not_clipped() -> None:
    drawn = pixels(DETECT.draw(png(np.full((20, 50), 0x4000, np.uint16)), Detections(True, None), {}))
    assert (0x40, 0x40, 0x40) == tuple(drawn[9, 9])


def test_points_are_joined() -> None:
    points = (Keypoint("nose", 10, 20, None), Keypoint("tail", 10, 60, None))
    drawn = pixels(
        KEYPOINTS.draw(
            png(np.zeros((20, 80, 3), np.uint8)), Keypoints(True, None, points, ((0, 1),)), {"nose": (1, 2, 3)}
        )
    )
    tail = palette_colour(1)
    assert [(1, 2, 3), tail, tail, (0, 0, 0)] == [
        tuple(drawn[place]) for place in ((10, 20), (10, 40), (10, 60), (10, 75))
    ]


def test_a_map_is_translucent_above_a_legend_of_its_classes() -> None:
    class_ids = np.zeros((30, 40), np.uint8)
    class_ids[:, 20:] = 2
    segmentation = Segmentation(True, None, png(class_ids), ("road", "tree", "car"), {"road": 0.5, "car": 0.5})
    drawn = pixels(SEGMENT.draw(png(np.full((30, 40, 3), 100, np.uint8)), segmentation, {}))
    road, car = np.array(palette_colour(0)), np.array(palette_colour(2))
    np.testing.assert_allclose((road + 100) / 2, drawn[10, 10], atol=1)
    np.testing.assert_allclose((car + 100) / 2, drawn[10, 30], atol=1)
    line = (len(drawn) - 30) // 2
    assert tuple(road) == tuple(drawn[30 + line // 2, 2])
    assert tuple(car) == tuple(drawn[30 + line + line // 2, 2])


def test_stated_colours_are_used() -> None:
    black, colours = png(np.zeros((30, 40, 3), np.uint8)), {"cat": (1, 2, 3)}
    boxes = (Box("cat", 0.9, 5, 5, 25, 15), Box("dog", 0.8, 5, 20, 25, 35))
    drawn = pixels(DETECT.draw(black, Detections(True, None, boxes), colours))
    assert ((1, 2, 3), label_colour("dog")) == (tuple(drawn[25, 10]), tuple(drawn[25, 30]))
    segmentation = Segmentation(True, None, png(np.ones((30, 40), np.uint8)), ("road", "cat"), {"cat": 1.0})
    drawn = pixels(SEGMENT.draw(black, segmentation, {"cat": (200, 100, 50)}))
    assert ((100, 50, 25), (200, 100, 50)) == (tuple(drawn[10, 10]), tuple(drawn[40, 2]))


def test_a_map_of_another_size_is_a_value_error() -> None:
    segmentation = Segmentation(True, None, png(np.zeros((3, 4), np.uint8)), ("road",), {"road": 1.0})
    with pytest.raises(ValueError, match="the map has 4×3 pixels, but the photo 5×3"):
        SEGMENT.draw(png(np.zeros((3, 5, 3), np.uint8)), segmentation, {})


def test_a_photo_that_pillow_cannot_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Pillow cannot read the photo: cannot identify image file"):
        DETECT.draw(b"<html>", Detections(True, None), {})
