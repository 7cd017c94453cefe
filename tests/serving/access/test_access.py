"""Who may call what, with and without a tokens file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from savedmodel_bakery.serving.access.access import Access, Identity, RateLimit, TokensFile, is_local_peer, is_loopback
from savedmodel_bakery.serving.access.tokens import Role, Token, TokensError, format_token, hash_secret
from savedmodel_bakery.wire.status import Code, StatusError

SECRET = "correct-horse"


def entry(
    name: str = "shop",
    secret: str = SECRET,
    roles: tuple[Role, ...] = (Role.PREDICT,),
    models: frozenset[str] | None = frozenset({"pets"}),
    **limits: float,
) -> Token:
    return Token(
        name, hash_secret(secret), frozenset(roles), models if Role.PREDICT in roles else frozenset(), **limits
    )


def write(path: Path, *tokens: Token) -> Path:
    """Replace the file by another one, as an editor does."""
    new = path.with_suffix(".new")
    new.write_text("\n".join(map(format_token, tokens)))
    new.replace(path)
    return path


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def code(access: Access, credentials: str | None, *, is_local: bool = False, role: Role | None = Role.PREDICT) -> Code:
    """Return the status code of `authorize`; its error must not contain the token."""
    texts, code = "", Code.OK
    try:
        access.authorize(credentials, is_local=is_local, role=role)
    except StatusError as error:
        texts, code = str(error) + repr(error), error.code
    assert SECRET not in texts
    return code


@pytest.mark.parametrize("role", [Role.PREDICT, Role.METRICS, None])
def test_without_a_tokens_file_everybody_may_predict_and_read_metrics(role: Role | None) -> None:
    identity = Access().authorize(None, is_local=False, role=role)
    identity.check_model("any")
    identity.take(10**9)


def test_without_a_tokens_file_only_local_callers_are_admins() -> None:
    assert Code.OK == code(Access(), None, is_local=True, role=Role.ADMIN)
    assert Code.PERMISSION_DENIED == code(Access(), None, role=Role.ADMIN)


@pytest.mark.parametrize(
    ("credentials", "expected"),
    [
        pytest.param(None, Code.UNAUTHENTICATED, id="none"),
        pytest.param("", Code.UNAUTHENTICATED, id="empty"),
        pytest.param("Bearer", Code.UNAUTHENTICATED, id="only the scheme"),
        pytest.param(SECRET, Code.UNAUTHENTICATED, id="only the token"),
        pytest.param(f"Basic {SECRET}", Code.UNAUTHENTICATED, id="another scheme"),
        pytest.param(f"Bearer {SECRET}x", Code.UNAUTHENTICATED, id="a wrong token"),
        pytest.param(f"Bearer {SECRET}é\udcff", Code.UNAUTHENTICATED, id="not ASCII"),
        pytest.param(f"Bearer {SECRET}", Code.OK, id="the token"),
        pytest.param(f"bearer  {SECRET} ", Code.OK, id="case and spaces"),
    ],
)
def test_a_call_needs_a_valid_token(tmp_path: Path, credentials: str | None, expected: Code) -> None:
    access = Access(write(tmp_path / "tokens.toml", entry(), entry("other", "other")))
    assert expected == code(access, credentials)
    assert expected == code(access, credentials, is_local=True)
    assert expected == code(access, credentials, role=None)


@pytest.mark.parametrize("needed", list(Role))
@pytest.mark.parametrize("given", list(Role))
def test_no_role_includes_another(tmp_path: Path, given: Role, needed: Role) -> None:
    access = Access(write(tmp_path / "tokens.toml", entry(roles=(given,))))
    expected = Code.OK if given is needed else Code.PERMISSION_DENIED
    assert expected == code(access, f"Bearer {SECRET}", role=needed, is_local=True)


def test_a_token_covers_only_its_models() -> None:
    identity = Identity(entry())
    identity.check_model("pets")
    with pytest.raises(StatusError, match='PERMISSION_DENIED: the token "shop" does not cover the model "cars"'):
        identity.check_model("cars")
    Identity(entry(models=None)).check_model("cars")


def test_requests_beyond_the_limit_are_rejected_with_the_time_to_wait(tmp_path: Path) -> None:
    access = Access(write(tmp_path / "tokens.toml", entry(requests_per_second=0.001, rows_per_second=0.5)))
    identity = access.authorize(f"Bearer {SECRET}", is_local=False, role=Role.PREDICT)
    with pytest.raises(StatusError) as error:
        access.authorize(f"Bearer {SECRET}", is_local=False, role=Role.PREDICT)
    expected = 'the token "shop" permits 0.001 requests per second (requests_per_second in the tokens file)'
    assert (Code.RESOURCE_EXHAUSTED, expected) == (error.value.code, error.value.message)
    assert error.value.retry_after_s == pytest.approx(1000, abs=50)
    identity.take(3)
    with pytest.raises(StatusError, match=r"permits 0.5 rows per second \(rows_per_second in the tokens file\)"):
        identity.take(1)


def test_a_rate_holds_on_average_and_admits_requests_of_any_size() -> None:
    clock = Clock()
    limit = RateLimit(10, clock=clock)
    assert [0, 0] == [limit.take(4), limit.take(6)]
    assert 0.1 == pytest.approx(limit.take(1))
    clock.now_s += 0.1
    assert 0 == limit.take(1)
    clock.now_s += 100
    assert 0 == limit.take(50)  # 40 in debt
    assert 4.1 == pytest.approx(limit.take(1))
    clock.now_s += 4
    assert 0.1 == pytest.approx(limit.take(1))


def test_a_changed_file_is_read_within_a_second_and_other_entries_keep_their_limits(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path / "tokens.toml", entry(), entry("other", "other"))
    file = TokensFile(path, clock=clock)
    before = file.identities()
    write(path, entry(), entry("new", "new"))
    assert before is file.identities()
    clock.now_s += 1
    after = file.identities()
    assert ["shop", "new"] == [identity.token.name for identity in after if identity.token]
    assert before[0] is after[0]


def test_a_file_that_becomes_invalid_or_disappears_keeps_its_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    path = write(tmp_path / "tokens.toml", entry())
    file = TokensFile(path, clock=clock)
    before = file.identities()
    path.write_text(f'[[tokens]]\ntoken = "{SECRET}"\n')
    for _ in range(3):
        clock.now_s += 1
        assert before is file.identities()
    path.unlink()
    for _ in range(3):
        clock.now_s += 1
        assert before is file.identities()
    assert [
        f"{path}: token 1: unknown key 'token'; must be one of name, sha256, roles, models, requests_per_second, "
        "rows_per_second; its last tokens stay valid",
        f"Cannot read {path} (No such file or directory); its last tokens stay valid",
    ] == [record.message for record in caplog.records if record.levelno == logging.ERROR]
    write(path)
    clock.now_s += 1
    assert () == file.identities()
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [f"{path} lists no tokens: only health is answered"] == warnings


def test_a_change_of_the_content_alone_is_noticed(tmp_path: Path) -> None:
    clock = Clock()
    path = write(tmp_path / "tokens.toml", entry())
    file = TokensFile(path, clock=clock)
    path.write_text(format_token(entry("club")))
    os.utime(path, ns=(1, 1))
    clock.now_s += 1
    assert "Identity('club')" == repr(file.identities()[0])


def test_a_file_that_is_not_valid_at_the_start_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_bytes(b"\xff")
    with pytest.raises(TokensError, match=r"tokens.toml: not valid UTF-8"):
        Access(tmp_path / "tokens.toml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TokensError, match=r"pipe: not a regular file"):
        Access(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        Access(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("ipv4:127.0.0.1:40000", True),
        ("ipv4:127.8.8.8:40000", True),
        ("ipv4:192.0.2.1:40000", False),
        ("ipv6:%5B::1%5D:40000", True),
        ("ipv6:[::ffff:127.0.0.1]:40000", True),
        ("ipv6:%5B2001:db8::1%5D:40000", False),
        ("unix:", True),
        ("unix:/run/model.sock", True),
        ("vsock:1:2", False),
        ("", False),
    ],
)
def test_local_peers_of_grpc(peer: str, expected: bool) -> None:
    assert expected is is_local_peer(peer)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("model.example", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert expected is is_loopback(host)
