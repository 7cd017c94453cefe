"""Functions between a detector and a classifier of what it found: the steps of the pipeline in shape_colours.toml.

`cut` decodes photos as the detector does, and fits crops to the classifier's input as the classifier fits photos: it
uses the recipes of both, and the functions that their graphs are made of.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import tensorflow as tf

from savedmodel_bakery.exporter.image import encodings, framing, pixels
from savedmodel_bakery.exporter.image.header import read_header
from savedmodel_bakery.exporter.publish import RECIPE_FILE
from savedmodel_bakery.exporter.recipe import Recipe, read_recipe_file

DETECTOR, CLASSIFIER = (
    Recipe.from_values(read_recipe_file(Path("saved_model", model, "1", RECIPE_FILE)).values).preprocessing
    for model in ("shapes", "colours")
)
WHOLE = replace(DETECTOR, crop="none", decode="exact")  # the whole photo at its size


def cut(image: tf.Tensor, boxes: tf.Tensor, count: tf.Tensor) -> dict[str, tf.Tensor]:
    """Cut what is in boxes out of photos.

    Args:
        image: string [n], image files.
        boxes: float32 [n, m, 4], ymin, xmin, ymax, xmax in pixels of the upright photo.
        count: int32 [n], the number of boxes in each photo.

    Returns:
        `pixels`, uint8 [crops, height, width, 3], the input of the classifier, photo by photo, and `crops`, int32 [n],
        the number of crops of each photo.
    """
    crops = tf.map_fn(
        lambda photo: cut_photo(*photo),
        (image, boxes, count),
        fn_output_signature=tf.RaggedTensorSpec([None, *CLASSIFIER.size, 3], tf.uint8, ragged_rank=0),
    )
    return {"pixels": crops.values, "crops": tf.cast(crops.row_lengths(), tf.int32)}


def cut_photo(image: tf.Tensor, boxes: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return the crops of one photo; none if it has no boxes, or can't be read."""
    photo = tf.cond(count > 0, lambda: read_upright(image), lambda: tf.zeros([0, 0, 3], tf.uint8))
    return tf.map_fn(
        lambda box: fit(photo, box),
        boxes[: tf.where(tf.size(photo) > 0, count, 0)],
        fn_output_signature=tf.TensorSpec([*CLASSIFIER.size, 3], tf.uint8),
    )


def read_upright(image: tf.Tensor) -> tf.Tensor:
    """Return the pixels of an image file, uint8 [height, width, 3]; [0, 0, 3] if it can't be read."""
    data = encodings.decode(image)
    header = read_header(data)
    size = header.height * header.width
    return tf.cond(
        (size > 0) & (size <= WHOLE.max_pixels),
        lambda: pixels.decode_file(data, header, WHOLE).pixels,
        lambda: tf.zeros([0, 0, 3], tf.uint8),
    )


def fit(photo: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """Return what is in a box, at least one pixel, as the classifier's input: uint8 [height, width, 3]."""
    first, last = tf.cast(tf.floor(box[:2]), tf.int64), tf.cast(tf.math.ceil(box[2:]), tf.int64)
    size = tf.shape(photo, tf.int64)[:2]
    first = tf.clip_by_value(first, 0, size - 1)
    last = tf.clip_by_value(last, first + 1, size)
    crop = framing.Window(*tf.unstack(first), *tf.unstack(last - first)).crop(photo)
    window = framing.kept_window(*tf.unstack(last - first), CLASSIFIER)
    kept = pixels.DecodedImage(window.crop(crop), framing.fit(window.height, window.width, CLASSIFIER))
    return tf.saturate_cast(tf.round(pixels.resize(kept, CLASSIFIER)), tf.uint8)


def describe(
    shapes: tf.Tensor, shape_scores: tf.Tensor, colours: tf.Tensor, colour_scores: tf.Tensor, crops: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Put what is known of each crop into the rows of the photos.

    Args:
        shapes: string [n, m], the detector's labels of the boxes.
        shape_scores: float32 [n, m], their scores.
        colours: string [crops, k], the classifier's labels, best first.
        colour_scores: float32 [crops, k], their scores.
        crops: int32 [n], the number of crops of each photo.

    Returns:
        `labels`, string [n, m], such as "red circle", and `scores`, float32 [n, m], the products of both scores; "" and
        0 where there is no crop.
    """
    is_crop = tf.sequence_mask(crops, tf.shape(shapes)[1])
    last = tf.shape(colours)[0]
    crop = tf.minimum(tf.cumsum(tf.reshape(tf.cast(is_crop, tf.int32), [-1]), exclusive=True), last)
    colour, score = (
        tf.reshape(tf.gather(tf.concat([values[:, 0], [blank]], axis=0), crop), tf.shape(shapes))
        for values, blank in ((colours, ""), (colour_scores, 0.0))
    )
    return {
        "labels": tf.where(is_crop, tf.strings.join([colour, shapes], " "), ""),
        "scores": tf.where(is_crop, shape_scores * score, 0.0),
    }
