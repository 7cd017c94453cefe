"""What the command line prints about an image or a version. Must not know how it was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.client.results import Classification, VersionStatus
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from savedmodel_bakery.client.goldens import Golden


def image_lines(answer: Classification) -> Iterator[str]:
    """Spell an answer for people: a line a class with label, score and class id, or the label alone."""
    if not answer.top:
        yield answer.label or ""
    for scored in answer.top:
        yield f"{scored.label}\t{scored.score:.3f}\t{scored.class_id}"


def image_row(image: str, answer: Classification, *, model: str, version: int | None, signature: str) -> dict[str, Any]:
    """An answer for machines; what a line of JSON, and a row of a job, holds."""
    return {
        "image": image,
        "ok": answer.ok,
        "label": answer.label,
        "error": answer.error,
        "top": [{"label": row.label, "score": row.score, "class_id": row.class_id} for row in answer.top],
        "model": model,
        "version": version,
        "signature": signature,
    }


def row_json(row: Mapping[str, Any]) -> str:
    """Spell a row as one JSON object on one line."""
    return json.dumps(row, ensure_ascii=False)


def version_line(status: VersionStatus) -> str:
    """Spell a version's state for people: number, state and, where it failed, why."""
    line = f"{status.version}\t{status.state}"
    return line if status.code is Code.OK else f"{line}\t{one_line(f'{status.code.name}: {status.message}')}"


def version_json(status: VersionStatus) -> str:
    """Spell a version's state for machines, as one JSON object on one line."""
    fields = {
        "version": status.version,
        "state": status.state,
        "code": status.code.name,
        "message": status.message,
    }
    return json.dumps(fields, ensure_ascii=False)


def golden_line(transport: str, golden: Golden, differences: Sequence[str]) -> str:
    """Spell for people how a golden request was answered: transport, signature, number, and what differs."""
    found = one_line("; ".join(differences)) if differences else "agrees"
    return f"{transport}\t{golden.signature}\t{golden.number}\t{found}"


def golden_json(transport: str, golden: Golden, differences: Sequence[str]) -> str:
    """Spell the same for machines, as one JSON object on one line."""
    fields = {
        "transport": transport,
        "signature": golden.signature,
        "number": golden.number,
        "agrees": not differences,
        "differences": list(differences),
    }
    return json.dumps(fields, ensure_ascii=False)


def plain_reason(message: str) -> str:
    """What a baked servable says of a bad image, without the words that TensorFlow puts around a failed assertion."""
    return re.sub(r"assertion failed: \[(.*?)\]\s+\[\[.*", r"\1", message, flags=re.DOTALL)


def one_line(message: str) -> str:
    """Put a message on one line, whatever line breaks a server wrote into it."""
    return " ".join(message.split())
