"""The caller of a request: which models it may use, and how much."""

from __future__ import annotations

from savedmodel_bakery.serving.access.rate_limit import RateLimit
from savedmodel_bakery.serving.access.tokens import Token
from savedmodel_bakery.serving.telemetry.calls import TOKEN_CALLS
from savedmodel_bakery.wire.status import Code, StatusError


class Identity:
    """A caller.

    Args:
        token: what the caller's token permits; None for a caller that needs none and may use all models.
    """

    def __init__(self, token: Token | None = None) -> None:
        self.token = token
        self._calls = TOKEN_CALLS.labels(token.name) if token else None
        self._requests = _rate_limit(token.requests_per_second if token else None)
        self._rows = _rate_limit(token.rows_per_second if token else None)

    def __repr__(self) -> str:
        return f"Identity({self.token.name if self.token else ''!r})"

    def covers(self, name: str) -> bool:
        """Return whether the caller may use a model."""
        return not self.token or self.token.models is None or name in self.token.models

    def check_model(self, name: str) -> None:
        """Check that the caller may use a model. Call this before looking the model up.

        Raises:
            StatusError: PERMISSION_DENIED, whether the model exists or not.
        """
        if self.token and not self.covers(name):
            raise StatusError(
                Code.PERMISSION_DENIED, f'the token "{self.token.name}" does not cover the model "{name}"'
            )

    def take_request(self) -> None:
        """Count a request.

        Raises:
            StatusError: RESOURCE_EXHAUSTED if the caller has sent its requests of this second.
        """
        if self._calls:
            self._calls.inc()
        if self._requests:
            self._take(self._requests, 1, "requests")

    def take(self, rows: int) -> None:
        """Count the rows of a request, before they are processed.

        Raises:
            StatusError: RESOURCE_EXHAUSTED if the caller has sent its rows of this second.
        """
        if self._rows:
            self._take(self._rows, rows, "rows")

    def _take(self, limit: RateLimit, units: int, unit: str) -> None:
        assert self.token
        retry_after_s = limit.take(units)
        if retry_after_s:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f'the token "{self.token.name}" permits {limit.per_second:g} {unit} per second ({unit}_per_second in '
                "the tokens file)",
                retry_after_s=retry_after_s,
                limit=f"{unit}_per_second",
            )


def _rate_limit(per_second: float | None) -> RateLimit | None:
    return RateLimit(per_second) if per_second else None
