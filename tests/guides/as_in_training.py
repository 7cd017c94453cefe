"""Prepare the photos of a folder as OpenCV and torchvision do: FOLDER HEIGHT WIDTH OUT.npz; run in torch-env.

Also writes what torchvision's weights for ImageNet state, as JSON.
"""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import torchvision
from PIL import Image
from torchvision.transforms import functional
from torchvision.transforms._presets import ImageClassification


def torchvision_pixels(path, size):
    picture = functional.center_crop(functional.resize(Image.open(path).convert("RGB"), 64), size)
    return np.asarray(picture)


def weights():
    """Return shorter side, size, interpolation, mean and standard deviation by the name of weights."""
    found = {}
    for name in dir(torchvision.models):
        if name.endswith("_Weights"):
            for each in getattr(torchvision.models, name):
                transforms = each.transforms()
                if isinstance(transforms, ImageClassification) and "1K" in each.name:
                    found[str(each)] = [
                        *transforms.resize_size,
                        *transforms.crop_size,
                        transforms.interpolation.value,
                        transforms.mean,
                        transforms.std,
                    ]
    return found


folder, height, width, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
arrays = {"weights": json.dumps(weights())}
for path in sorted(folder.iterdir()):
    read = cv2.imread(str(path))
    arrays[f"OpenCV {path.name}"] = cv2.resize(read, (width, height))
    arrays[f"OpenCV, area {path.name}"] = cv2.resize(read, (width, height), interpolation=cv2.INTER_AREA)
    arrays[f"torchvision {path.name}"] = torchvision_pixels(path, [height, width])
np.savez(out, **arrays)
