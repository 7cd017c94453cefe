"""Reads and edits the text of a config file, a ModelServerConfig. Does no I/O.

An edit changes the versions and labels of one model and keeps every other character, comments included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.client.rollout.errors import ConfigError
from savedmodel_bakery.client.rollout.text_fields import Field, Value, find_fields
from savedmodel_bakery.wire import schema

_POLICY, _SPECIFIC, _VERSIONS, _LABELS = "model_version_policy", "specific", "versions", "version_labels"


def parse(text: str) -> Any:
    """Return the ModelServerConfig of a text.

    Raises:
        ConfigError: the text is not one.
    """
    try:
        return text_format.Parse(text, schema.ModelServerConfig(), descriptor_pool=schema.POOL)
    except text_format.ParseError as error:
        hint = "it begins with a byte order mark: " if text.startswith("\ufeff") else ""
        raise ConfigError(f"not a valid ModelServerConfig: {hint}{error}") from error


def edit_model(text: str, model: str, *, versions: frozenset[int], labels: Mapping[str, int]) -> str:
    """Return the text with the version policy `specific` and the labels of a model; nothing else is changed.

    Args:
        text: a valid ModelServerConfig.
        model: a model that it lists once.
        versions: the versions to serve.
        labels: all labels of the model, with their versions.

    Raises:
        ConfigError: the text states the policy of the model in parts, which cannot be edited.
    """
    expected = parse(text)
    place = [config.name for config in expected.model_config_list.config].index(model)
    config = expected.model_config_list.config[place]
    current = dict(config.version_labels)
    config.model_version_policy.specific.versions[:] = versions
    config.version_labels.clear()
    config.version_labels.update(labels)
    edited = _with_versions(text, place, versions)
    for label in sorted(current.keys() - labels.keys()):
        edited = _without_label(edited, place, label)
    for label, version in labels.items():
        if current.get(label) != version:
            edited = _with_label(edited, place, label, version)
    actual = parse(edited)
    for message in (expected, actual):
        specific = message.model_config_list.config[place].model_version_policy.specific
        specific.versions[:] = sorted(set(specific.versions))
    if actual != expected:
        raise ConfigError(f'the versions and labels of model "{model}" are written in a way that cannot be edited')
    return edited


def _find_model(text: str, place: int) -> Value:
    lists = [value for field in find_fields(text) for value in field.values if field.name == "model_config_list"]
    return [value for models in lists for field in models.fields for value in field.values][place]


def _with_versions(text: str, place: int, versions: frozenset[int]) -> str:
    """Return the text with the policy `specific` of these versions."""
    fields = " ".join(f"{_VERSIONS}: {version}" for version in sorted(versions))
    model = _find_model(text, place)
    policies = [value for field in _named(model, _POLICY) for value in field.values]
    if not policies:
        return _with_field(text, model, f"{_POLICY} {{ {_SPECIFIC} {{ {fields} }} }}")
    if not policies[0].fields:
        return _with_field(text, policies[0], f"{_SPECIFIC} {{ {fields} }}")
    choice = policies[0].fields[0]
    if choice.name == _SPECIFIC:
        return _with_specific(text, place, versions)
    text = text[: choice.start] + _SPECIFIC + text[choice.start + len(choice.name) :]
    settings = _find_specific(text, place)
    if not settings.fields:
        return _with_field(text, settings, fields)
    number = settings.fields[0]
    return text[: number.start] + fields + text[number.end :]


def _find_specific(text: str, place: int) -> Value:
    [policy, *_] = [value for field in _named(_find_model(text, place), _POLICY) for value in field.values]
    return policy.fields[0].values[0]


def _with_specific(text: str, place: int, versions: frozenset[int]) -> str:
    """Return the text with other versions of a policy that is `specific` already."""
    current = {_read_version(text, value) for _, value in _elements(_find_specific(text, place), _VERSIONS)}
    for version in sorted(versions - current):
        specific = _find_specific(text, place)
        elements = _elements(specific, _VERSIONS)
        if elements and elements[-1][0].is_list:
            end = elements[-1][1].end
            text = f"{text[:end]}, {version}{text[end:]}"
        else:
            text = _with_field(text, specific, f"{_VERSIONS}: {version}")
    for version in sorted(current - versions):
        while elements := [
            (field, value)
            for field, value in _elements(_find_specific(text, place), _VERSIONS)
            if _read_version(text, value) == version
        ]:
            text = _without_value(text, *elements[0])
    return text


def _with_label(text: str, place: int, label: str, version: int) -> str:
    entries = _find_labels(text, place, label)
    if not entries:
        return _with_field(text, _find_model(text, place), f'{_LABELS} {{ key: "{label}" value: {version} }}')
    _, entry = entries[-1]
    numbers = _elements(entry, "value")
    if not numbers:
        return _with_field(text, entry, f"value: {version}")
    [(_, number)] = numbers
    return f"{text[: number.start]}{version}{text[number.end :]}"


def _without_label(text: str, place: int, label: str) -> str:
    while entries := _find_labels(text, place, label):
        text = _without_value(text, *entries[0])
    return text


def _find_labels(text: str, place: int, label: str) -> list[tuple[Field, Value]]:
    """Return the entries of a label, of which the last one counts."""
    entries = _elements(_find_model(text, place), _LABELS)
    return [entry for entry in entries if label in _read_label(text, entry[1])]


def _named(message: Value, name: str) -> list[Field]:
    return [field for field in message.fields if field.name == name]


def _elements(message: Value, name: str) -> list[tuple[Field, Value]]:
    """Return the values of a repeated field, each with its field, in the order of the text."""
    return [(field, value) for field in _named(message, name) for value in field.values]


def _read_version(text: str, value: Value) -> int:
    policy = f"{_POLICY} {{ {_SPECIFIC} {{ {_VERSIONS}: {text[value.start : value.end]} }} }}"
    [version] = _parse_model(policy).model_version_policy.specific.versions
    return int(version)


def _read_label(text: str, value: Value) -> dict[str, int]:
    return dict(_parse_model(f"{_LABELS} {text[value.start : value.end]}").version_labels)


def _parse_model(text: str) -> Any:
    return parse(f"model_config_list {{ config {{ {text} \n}} }}").model_config_list.config[0]


def _with_field(text: str, message: Value, field: str) -> str:
    """Return the text with another field at the end of a message: on a line of its own if the closing bracket is."""
    closing = message.end - 1
    start = text.rfind("\n", 0, closing) + 1
    indent = text[start:closing]
    if start <= message.start or indent.strip():
        return text[:closing].rstrip(" \t") + f" {field} " + text[closing:]
    indents = [_indent(text, sibling.start) for sibling in message.fields]
    own = next((own for own in reversed(indents) if own is not None), f"{indent}  ")
    newline = "\r\n" if text[:start].endswith("\r\n") else "\n"
    return f"{text[:start]}{own}{field}{newline}{text[start:]}"


def _indent(text: str, offset: int) -> str | None:
    """Return the white space before a field on its line; None if something else is before it."""
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return None if before.strip() else before


def _without_value(text: str, field: Field, value: Value) -> str:
    """Return the text without a field or, if it is written as a list, without one of its elements."""
    if not field.is_list:
        return _without(text, field.start, field.end, field.separator)
    text = _without(text, value.start, value.end, value.separator)
    commas = [element.separator for element in field.values if element.separator is not None]
    if value.separator is None and commas:  # it is the last one
        return text[: commas[-1]] + text[commas[-1] + 1 :]
    return text


def _without(text: str, start: int, end: int, separator: int | None) -> str:
    """Return the text without a span and the separator after it, and without the line if nothing else is on it."""
    if separator is not None:
        if text[end:separator].strip():  # a comment is between
            text = text[:separator] + text[separator + 1 :]
        else:
            end = separator + 1
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    before, after = text[line_start:start], text[end:line_end]
    if not before.strip() and not after.strip():
        return text[:line_start] + text[line_end + 1 :]
    if before.strip():
        return text[:start].rstrip(" \t") + text[end:]
    return text[:start] + text[end:].lstrip(" \t")
