"""Write presets of tiny KerasHub models with seeded random weights, and what KerasHub itself makes of the photos.

    python keras_hub_presets.py OUT PHOTO…

Writes OUT/classifier, OUT/deep_lab, OUT/segformer and OUT/detector, and OUT/expected.npz, each array with a row per
photo: `scores` of the classifier and the `pixels` that it receives; `deep_lab_shares` and `segformer_shares`, the parts
of the pixels that these segmenters give each class; `best`, the highest score of the detector, and `box`, its box in
the network's pixels as y, x, y, x.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import keras_hub
import numpy as np
from PIL import Image

models, layers = keras_hub.models, keras_hub.layers
SIDE = 96
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SCALE = {"scale": (1 / 255 / STD).tolist(), "offset": (-MEAN / STD).tolist()}


def backbone(blocks: int) -> Any:
    return models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64] * blocks,
        stackwise_num_blocks=[1] * blocks,
        stackwise_num_strides=[1, *[2] * (blocks - 1)],
        block_type="basic_block",
    )


def save_classifier(folder: Path, photos: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Write an image classifier of three classes."""
    converter = layers.ResNetImageConverter(image_size=(SIDE, SIDE), antialias=True, **SCALE)
    preprocessor = models.ResNetImageClassifierPreprocessor(image_converter=converter)
    classifier = models.ResNetImageClassifier(
        backbone=backbone(2), num_classes=3, preprocessor=preprocessor, activation="softmax"
    )
    classifier.save_to_preset(str(folder))
    scores = [classifier.predict(photo[np.newaxis], verbose=0)[0] for photo in photos]
    pixels = [np.asarray(converter(photo[np.newaxis]))[0] for photo in photos]
    return {"scores": np.stack(scores), "pixels": np.stack(pixels) * (255 * STD) + 255 * MEAN}


def save_deep_lab(folder: Path, photos: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Write a DeepLab of two classes, which stretches photos."""
    converter = layers.DeepLabV3ImageConverter(image_size=(SIDE, SIDE), crop_to_aspect_ratio=False, scale=1 / 255)
    deep_lab = models.DeepLabV3Backbone(
        image_encoder=backbone(4),
        spatial_pyramid_pooling_key="P5",
        upsampling_size=16,
        low_level_feature_key=None,
        projection_filters=8,
        dilation_rates=[2],
    )
    preprocessor = models.DeepLabV3ImageSegmenterPreprocessor(image_converter=converter)
    segmenter = models.DeepLabV3ImageSegmenter(backbone=deep_lab, num_classes=2, preprocessor=preprocessor)
    return {"deep_lab_shares": save_segmenter(segmenter, folder, photos)}


def save_segformer(folder: Path, photos: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Write a SegFormer of two classes, which stretches photos and normalises them as for ImageNet."""
    converter = layers.SegFormerImageConverter(image_size=(SIDE, SIDE), crop_to_aspect_ratio=False, **SCALE)
    encoder = models.MiTBackbone(
        layerwise_depths=[1, 1, 1, 1],
        num_layers=4,
        layerwise_num_heads=[1, 1, 2, 2],
        layerwise_sr_ratios=[8, 4, 2, 1],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3, 3, 3],
        layerwise_strides=[4, 2, 2, 2],
        image_shape=(SIDE, SIDE, 3),
        hidden_dims=[8, 12, 16, 20],
    )
    segformer = models.SegFormerBackbone(image_encoder=encoder, projection_filters=16)
    preprocessor = models.SegFormerImageSegmenterPreprocessor(image_converter=converter)
    segmenter = models.SegFormerImageSegmenter(backbone=segformer, num_classes=2, preprocessor=preprocessor)
    return {"segformer_shares": save_segmenter(segmenter, folder, photos)}


def save_segmenter(segmenter: Any, folder: Path, photos: list[np.ndarray]) -> np.ndarray:
    """Write a segmenter of two classes, and return what part of the pixels of each photo it gives each class."""
    segmenter.save_to_preset(str(folder))
    classes = [segmenter.predict(photo[np.newaxis], verbose=0)[0].argmax(axis=-1) for photo in photos]
    return np.stack([[1 - ids.mean(), ids.mean()] for ids in classes])


def save_detector(folder: Path, photos: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Write a RetinaNet of two classes, whose scores are around a half, with a letterbox."""
    converter = layers.RetinaNetImageConverter(
        image_size=(SIDE, SIDE), crop_to_aspect_ratio=False, pad_to_aspect_ratio=True, **SCALE
    )
    pyramid = models.RetinaNetBackbone(image_encoder=backbone(4), min_level=3, max_level=4, use_p5=False)
    detector = models.RetinaNetObjectDetector(
        backbone=pyramid,
        num_classes=2,
        bounding_box_format="yxyx",
        classification_head_prior_probability=0.5,
        pre_logits_num_conv_layers=1,
        preprocessor=models.RetinaNetObjectDetectorPreprocessor(image_converter=converter),
    )
    for weights in detector.box_head.weights:  # so that boxes stay near their anchors
        weights.assign(weights * 0.1)
    detector.save_to_preset(str(folder))
    found = [detector.predict(photo[np.newaxis], verbose=0) for photo in photos]
    return {
        "best": np.stack([each["confidence"][0][0] for each in found]),
        "box": np.stack([each["boxes"][0][0] for each in found]),
    }


def main() -> None:
    """Write the presets to the folder of the first argument."""
    keras.utils.set_random_seed(1)
    out, photos = Path(sys.argv[1]), [np.asarray(Image.open(photo).convert("RGB")) for photo in sys.argv[2:]]
    expected = save_classifier(out / "classifier", photos)
    expected |= save_deep_lab(out / "deep_lab", photos) | save_detector(out / "detector", photos)
    expected |= save_segformer(out / "segformer", photos)
    np.savez(out / "expected.npz", **expected)


if __name__ == "__main__":
    main()
