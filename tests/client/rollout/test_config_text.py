"""Edits of a config file change the versions and labels of one model, and keep every other character."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savedmodel_bakery.client.rollout import ConfigError
from savedmodel_bakery.client.rollout.config_text import edit_model, parse

FIRST = 'model_config_list {\n  config { name: "other" base_path: "/o" }  # not mine\n'
LAST = "\n  config: < name: 'last' model_version_policy { latest { num_versions: 2 } } >\n}  # end"


def around(model: str) -> str:
    """Return a config file with a model between two others."""
    return f"{FIRST}{model}{LAST}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            '  config {\n    name: "m"  # the model\n    base_path: "/m"\n  }',
            '  config {\n    name: "m"  # the model\n    base_path: "/m"\n'
            "    model_version_policy { specific { versions: 6 versions: 7 } }\n"
            '    version_labels { key: "stable" value: 6 }\n    version_labels { key: "canary" value: 7 }\n  }',
            id="without policy and labels",
        ),
        pytest.param(
            'config { name: "m" }',
            'config { name: "m" model_version_policy { specific { versions: 6 versions: 7 } }'
            ' version_labels { key: "stable" value: 6 } version_labels { key: "canary" value: 7 } }',
            id="on one line",
        ),
        pytest.param(
            "config: {\r\n\tname: 'm';\r\n\tmodel_version_policy: {specific: {versions: 6}},\r\n}",
            "config: {\r\n\tname: 'm';\r\n\tmodel_version_policy: {specific: {versions: 6 versions: 7 }},\r\n"
            '\tversion_labels { key: "stable" value: 6 }\r\n\tversion_labels { key: "canary" value: 7 }\r\n}',
            id="colons, separators, tabs and CRLF",
        ),
        pytest.param(
            "config <\n  name: 'm'\n  model_version_policy <\n    specific <\n      versions: 6  # good\n"
            "      # bad:\n      versions: 5\n    >\n  >\n"
            "  version_labels < key: 'stable' value: 5 >  # mostly\n  version_labels <key: 'canary', value: 0x7>\n>",
            "config <\n  name: 'm'\n  model_version_policy <\n    specific <\n      versions: 6  # good\n"
            "      # bad:\n      versions: 7\n    >\n  >\n"
            "  version_labels < key: 'stable' value: 6 >  # mostly\n  version_labels <key: 'canary', value: 0x7>\n>",
            id="angle brackets, quotes and comments",
        ),
        pytest.param(
            'config { name: "m" model_version_policy { specific { versions: [ 5, 6 ] } }'
            ' version_labels: [ { key: "old" value: 5 }, { key: "stable" value: 6 } ] }',
            'config { name: "m" model_version_policy { specific { versions: [ 6, 7 ] } }'
            ' version_labels: [ { key: "stable" value: 6 } ] version_labels { key: "canary" value: 7 } }',
            id="lists",
        ),
        pytest.param(
            'config { name: "m" model_version_policy { specific { versions: [6, # six\n 5  # five\n] } } '
            'version_labels [{ key: "stable" value: 6 }, { key: "old" value: 5 } # old\n, { key: "x" value: 5 }] }',
            'config { name: "m" model_version_policy { specific { versions: [6, # six\n 7  # five\n] } } '
            'version_labels [{ key: "stable" value: 6 } # old\n ] version_labels { key: "canary" value: 7 } }',
            id="comments in lists",
        ),
        pytest.param(
            'config { name: "m" model_version_policy { specific { versions: [] } } }',
            'config { name: "m" model_version_policy { specific { versions: [] versions: 6 versions: 7 } }'
            ' version_labels { key: "stable" value: 6 } version_labels { key: "canary" value: 7 } }',
            id="empty list",
        ),
        pytest.param(
            'config {\n  name: "m"\n  model_version_policy {\n    # two, to go back\n    latest {\n'
            '      num_versions: 2  # see above\n    }\n  }\n  version_labels { key: "stable" value: 6 }\n'
            '  version_labels {\n    key: "previous"\n    value: 5\n  }\n}',
            'config {\n  name: "m"\n  model_version_policy {\n    # two, to go back\n    specific {\n'
            '      versions: 6 versions: 7  # see above\n    }\n  }\n  version_labels { key: "stable" value: 6 }\n'
            '  version_labels { key: "canary" value: 7 }\n}',
            id="latest",
        ),
        pytest.param(
            'config { name: "m" model_version_policy { all: {} } version_labels { key: "stable" } }',
            'config { name: "m" model_version_policy { specific: { versions: 6 versions: 7 } }'
            ' version_labels { key: "stable" value: 6 } version_labels { key: "canary" value: 7 } }',
            id="all, and a label without value",
        ),
        pytest.param(
            'config { name: "m" model_version_policy {} version_labels { key: "can" "ary" value: 5 }'
            ' version_labels { key: "canary" value: 6 } version_labels { key: "stable" value: 6 }; }',
            'config { name: "m" model_version_policy { specific { versions: 6 versions: 7 } }'
            ' version_labels { key: "can" "ary" value: 5 }'
            ' version_labels { key: "canary" value: 7 } version_labels { key: "stable" value: 6 }; }',
            id="empty policy, and a label twice",
        ),
    ],
)
def test_versions_and_labels_are_changed_in_place(before: str, after: str) -> None:
    labels = {"stable": 6, "canary": 7}
    assert around(after) == edit_model(around(before), "m", versions=frozenset({6, 7}), labels=labels)


def test_nothing_is_changed_if_nothing_differs() -> None:
    text = around('config { name: "m" model_version_policy { specific { versions: [7, 6] } } }')
    assert text == edit_model(text, "m", versions=frozenset({6, 7}), labels={})


def test_a_policy_in_parts_is_rejected() -> None:
    policy = "model_version_policy {{ specific {{ versions: {} }} }}"
    text = around(f'config {{ name: "m" {policy.format(5)} {policy.format(6)} }}')
    with pytest.raises(ConfigError):
        edit_model(text, "m", versions=frozenset({7}), labels={})


def test_an_invalid_text_is_rejected_with_line_and_column() -> None:
    with pytest.raises(ConfigError, match=r'^not a valid ModelServerConfig: 2:3 : .* has no field named "configs"'):
        parse("model_config_list {\n  configs {}\n}")


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


GAP = one_of(" ", "\n", "\n    ", "\t", " # } { [\n", "  # 'quote\n\n", "\r\n", '\n# versions: 3 "\n')
SEPARATOR = one_of("", ",", ";", " ;")
BRACKETS = one_of("{}", "<>")


@st.composite
def messages(draw: st.DrawFn, name: str, *fields: str, gaps: st.SearchStrategy[str] = GAP) -> str:
    """A message with fields, in any of the forms that the text format allows."""
    opening, closing = draw(BRACKETS)
    colon = draw(one_of("", ":", " : "))
    body = "".join(f"{draw(gaps)}{field}{draw(SEPARATOR)}" for field in fields)
    return f"{name}{colon}{draw(gaps)}{opening}{body}{draw(gaps)}{closing}"


@st.composite
def configs(draw: st.DrawFn) -> str:
    """A config file with a model `m` that has any policy and labels."""
    numbers = draw(st.lists(st.integers(1, 9), max_size=4))
    as_list = f"versions:{draw(GAP)}[{','.join(f'{draw(GAP)}{number}{draw(GAP)}' for number in numbers)}]"
    single = [f"versions: {number}" for number in draw(st.lists(st.integers(1, 9), max_size=3))]
    choices = (("specific", [as_list, *single]), ("latest", ["num_versions: 2"]), ("latest", []), ("all", []))
    name, fields = draw(st.sampled_from(choices))
    policies = ([], [draw(messages("model_version_policy", draw(messages(name, *fields))))])
    labels = [  # without comments, which are removed with the label that they are in
        draw(messages("version_labels", f"key: {key}", f"value: {draw(st.integers(1, 9))}", gaps=one_of(" ", "\n")))
        for key in draw(st.lists(one_of("'stable'", '"canary"', "'mi'\n \"ne\""), max_size=4))
    ]
    own = draw(st.permutations(["name: 'm'", 'base_path: "/m#}"', *draw(st.sampled_from(policies)), *labels]))
    others = 'config { name: "a" } # "m"\n', 'config { name: "z" version_labels { key: "stable" value: 3 } }'
    return draw(messages("model_config_list", others[0], draw(messages("config", *own)), others[1]))


@given(configs(), st.frozensets(st.integers(1, 9), min_size=1), st.dictionaries(one_of("stable", "canary"), st.just(4)))
def test_any_form_is_edited_and_all_comments_are_kept(
    text: str, versions: frozenset[int], labels: dict[str, int]
) -> None:
    edited = edit_model(text, "m", versions=versions, labels=labels)
    _, model, _ = parse(edited).model_config_list.config
    assert versions == set(model.model_version_policy.specific.versions)
    assert labels == dict(model.version_labels)
    assert parse(text).model_config_list.config[2] == parse(edited).model_config_list.config[2]
    comment = re.compile(r"# (?:\} \{ \[|'quote|versions: 3 \"|\"m\")")
    assert sorted(comment.findall(text)) == sorted(comment.findall(edited))
