"""FastAPI as tutorials have it: Pillow reads the photo, `model.predict` classifies it. The port is the argument."""

from __future__ import annotations

import base64
import sys
import threading

import uvicorn
from classifier import Classifier
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
classifier = Classifier()
# Keras doesn't promise that several threads may predict at once.
lock = threading.Lock()


class Question(BaseModel):
    """A photo in base64."""

    image: str


@app.post("/predict")
def predict(question: Question) -> dict[str, str]:
    """Label a photo; FastAPI runs this on a pool of threads."""
    pixels = classifier.read_with_pillow(base64.b64decode(question.image))
    with lock:
        scores = classifier.network.predict(pixels[None], verbose=0)
    return {"label": classifier.label(scores[0])}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
