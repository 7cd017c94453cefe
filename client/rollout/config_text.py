"""Reads and edits the text of a config file, a ModelServerConfig. Does no I/O.

An edit changes the versions and labels of one model and keeps every other character, comments included. It finds the
fields with protobuf's own tokenizer, so comments, quotes and line breaks are those of the parser. The syntax is that of
protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from google.protobuf import text_format

from savedmodel_bakery.client.rollout import ConfigError
from savedmodel_bakery.wire import schema

_POLICY, _SPECIFIC, _VERSIONS, _LABELS = "model_version_policy", "specific", "versions", "version_labels"
_CLOSING = {"{": "}", "<": ">"}
_QUOTES = ("'", '"')
_SEPARATORS = (",", ";")


def parse(text: str) -> Any:
    """Return the ModelServerConfig of a text."""
    try:
        return text_format.Parse(text, schema.ModelServerConfig(), descriptor_pool=schema.POOL)
    except text_format.ParseError as error:
        hint = "it begins with a byte order mark: " if text.startswith("\ufeff") else ""
        raise ConfigError(f"not a valid ModelServerConfig: {hint}{error}") from error


def edit_model(text: str, model: str, *, versions: frozenset[int], labels: Mapping[str, int]) -> str:
    """Return the text with the version policy `specific` and these labels of a model; nothing else is changed.

    The text is valid and lists the model once. ConfigError if it states the policy in parts, which cannot be edited.
    """
    expected = parse(text)
    place = [config.name for config in expected.model_config_list.config].index(model)
    config = expected.model_config_list.config[place]
    current = dict(config.version_labels)
    config.model_version_policy.specific.versions[:] = versions
    config.version_labels.clear()
    config.version_labels.update(labels)
    edited = _with_versions(text, place, versions)
    while obsolete := [
        entry
        for entry in _find_model(edited, place).named(_LABELS)
        if not _read_label(edited, entry).keys() <= labels.keys()
    ]:
        edited = _without(edited, obsolete[0])
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


def _find_model(text: str, place: int) -> Field:
    lists = [field for field in _Reader(text).fields("") if field.name == "model_config_list"]
    return [model for field in lists for model in field.fields][place]


def _with_versions(text: str, place: int, versions: frozenset[int]) -> str:
    """Return the text with the policy `specific` of these versions."""
    numbers = " ".join(f"{_VERSIONS}: {version}" for version in sorted(versions))
    model = _find_model(text, place)
    policies = model.named(_POLICY)
    if not policies:
        return _with_field(text, model, f"{_POLICY} {{ {_SPECIFIC} {{ {numbers} }} }}")
    if not policies[0].fields:
        return _with_field(text, policies[0], f"{_SPECIFIC} {{ {numbers} }}")
    choice = policies[0].fields[0]
    if choice.name == _SPECIFIC:
        return _with_specific(text, place, versions)
    if choice.fields:
        text = text[: choice.fields[0].start] + numbers + text[choice.fields[0].end :]
    else:
        text = _with_field(text, choice, numbers)
    return text[: choice.start] + _SPECIFIC + text[choice.start + len(choice.name) :]


def _with_specific(text: str, place: int, versions: frozenset[int]) -> str:
    """Return the text with other versions of a policy that is `specific` already."""

    def find_specific() -> Field:
        return _find_model(text, place).named(_POLICY)[0].fields[0]

    current = {_read_version(text, number) for number in find_specific().named(_VERSIONS)}
    for version in sorted(versions - current):
        specific = find_specific()
        numbers = specific.named(_VERSIONS)
        if numbers and numbers[-1].is_listed:
            text = f"{text[: numbers[-1].end]}, {version}{text[numbers[-1].end :]}"
        else:
            text = _with_field(text, specific, f"{_VERSIONS}: {version}")
    while obsolete := [
        number for number in find_specific().named(_VERSIONS) if _read_version(text, number) not in versions
    ]:
        text = _without(text, obsolete[0])
    return text


def _with_label(text: str, place: int, label: str, version: int) -> str:
    model = _find_model(text, place)
    entries = [entry for entry in model.named(_LABELS) if label in _read_label(text, entry)]
    if not entries:
        return _with_field(text, model, f'{_LABELS} {{ key: "{label}" value: {version} }}')
    numbers = entries[-1].named("value")  # the last one of a label counts
    if not numbers:
        return _with_field(text, entries[-1], f"value: {version}")
    return f"{text[: numbers[0].value]}{version}{text[numbers[0].end :]}"


def _read_version(text: str, number: Field) -> int:
    policy = f"{_POLICY} {{ {_SPECIFIC} {{ {_VERSIONS}: {text[number.value : number.end]} }} }}"
    [version] = _parse_model(policy).model_version_policy.specific.versions
    return int(version)


def _read_label(text: str, entry: Field) -> dict[str, int]:
    return dict(_parse_model(f"{_LABELS} {text[entry.value : entry.end]}").version_labels)


def _parse_model(text: str) -> Any:
    return parse(f"model_config_list {{ config {{ {text} \n}} }}").model_config_list.config[0]


def _with_field(text: str, message: Field, field: str) -> str:
    """Return the text with another field at the end of a message: on a line of its own if the closing bracket is."""
    closing = message.end - 1
    start = text.rfind("\n", 0, closing) + 1
    indent = text[start:closing]
    if start <= message.value or indent.strip():
        return text[:closing].rstrip(" \t") + f" {field} " + text[closing:]
    indents = [_indent(text, sibling.start) for sibling in message.fields]
    own = next((own for own in reversed(indents) if own is not None), f"{indent}  ")
    newline = "\r\n" if text[:start].endswith("\r\n") else "\n"
    return f"{text[:start]}{own}{field}{newline}{text[start:]}"


def _indent(text: str, offset: int) -> str | None:
    """Return the white space before a field on its line; None if something else is before it."""
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return None if before.strip() else before


def _without(text: str, field: Field) -> str:
    """Return the text without a field and its separator, and without the line if nothing else is on it."""
    start, end = field.start, field.end
    if field.separator is not None:
        if text[end : field.separator].strip():  # a comment is between
            text = text[: field.separator] + text[field.separator + 1 :]
        else:
            end = field.separator + 1
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    before, after = text[line_start:start], text[end:line_end]
    if not before.strip() and not after.strip():
        text = text[:line_start] + text[line_end + 1 :]
    elif before.strip():
        text = text[:start].rstrip(" \t") + text[end:]
    else:
        text = text[:start] + text[end:].lstrip(" \t")
    if field.separator is None and field.before is not None:  # the last one of a list
        text = text[: field.before] + text[field.before + 1 :]
    return text


@dataclass(frozen=True)
class Field:
    """A field in a text, or an element of a field that is written as a list. All positions are offsets in the text."""

    name: str
    start: int  # of the name, or of an element in a list
    value: int  # the first character of the value
    end: int  # after the value
    separator: int | None  # the comma or semicolon that follows
    before: int | None  # the comma before an element in a list
    is_listed: bool
    fields: Sequence[Field]  # of a message

    def named(self, name: str) -> list[Field]:
        """Return the fields with this name: the values of a repeated field, in the order of the text."""
        return [field for field in self.fields if field.name == name]


class _Token(NamedTuple):
    text: str
    start: int


class _Reader:
    """Reads the fields of a text protobuf, which must be valid: parse it first."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")  # as text_format.Parse does
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        tokenizer: Any = text_format.Tokenizer(lines)
        self._tokens: list[_Token] = []
        self._place = 0
        while not tokenizer.AtEnd():
            place = tokenizer.ParseError("")  # the tokenizer states positions, from 1, in its errors only
            self._tokens.append(_Token(tokenizer.token, starts[place.GetLine() - 1] + place.GetColumn() - 1))
            tokenizer.NextToken()
        self._tokens.append(_Token("", -1))

    def fields(self, closing: str) -> Sequence[Field]:
        """Read fields up to a token."""
        fields: list[Field] = []
        while self._next != closing:
            name = self._take()
            if name.text == "[":  # the name of an extension, or the type of an Any
                while self._take().text != "]":
                    pass
            if self._next == ":":
                self._take()
            if self._next == "[":
                fields += self._list(name.text)
            else:
                fields.append(self._field(name.text, name.start))
        return fields

    def _list(self, name: str) -> Iterator[Field]:
        self._take()
        before = None
        while self._next != "]":
            element = self._field(name, None, before)
            before = element.separator
            yield element
        self._take()
        self._separator()

    def _field(self, name: str, start: int | None, before: int | None = None) -> Field:
        """Read a value and its separator; `start` is None in a list."""
        value = self._take()
        fields: Sequence[Field] = ()
        if value.text in _CLOSING:
            fields = self.fields(_CLOSING[value.text])
            self._take()
        elif value.text.startswith(_QUOTES):
            while self._next.startswith(_QUOTES):
                self._take()
        elif value.text == "-":
            self._take()
        last = self._tokens[self._place - 1]
        return Field(
            name=name,
            start=value.start if start is None else start,
            value=value.start,
            end=last.start + len(last.text),
            separator=self._separator(),
            before=before,
            is_listed=start is None,
            fields=fields,
        )

    def _separator(self) -> int | None:
        return self._take().start if self._next in _SEPARATORS else None

    @property
    def _next(self) -> str:
        return self._tokens[self._place].text

    def _take(self) -> _Token:
        self._place += 1
        return self._tokens[self._place - 1]
