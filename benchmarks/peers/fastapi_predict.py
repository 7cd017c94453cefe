"""FastAPI as in tutorials: Pillow reads the photo, `model.predict` classifies it. The port is the argument."""

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
# Keras does not document `predict` as thread-safe.
lock = threading.Lock()


class PredictRequest(BaseModel):
    """A photo in base64."""

    image: str


@app.post("/predict")
def predict(request: PredictRequest) -> dict[str, str]:
    """Classify a photo; FastAPI calls this on a thread pool."""
    pixels = classifier.read_with_pillow(base64.b64decode(request.image))
    with lock:
        scores = classifier.network.predict(pixels[None], verbose=0)
    return {"label": classifier.label(scores[0])}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
