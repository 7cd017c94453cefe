"""Which role each RPC and each REST path needs."""

from __future__ import annotations

from savedmodel_bakery.serving.access.tokens import Role
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.v2.schema import METHODS as V2_METHODS

_PROFILER = "/tensorflow.ProfilerService/"

# RPCs of the v2 protocol that name a model; any valid token is enough for the others, most of which are unimplemented.
_NEED_PREDICT = ("ModelReady", "ModelMetadata", "ModelConfig", "ModelInfer", "RepositoryIndex")

RPC_ROLES: dict[str, Role | None] = {
    **{method.path: Role.PREDICT for method in METHODS.values()},
    METHODS["HandleReloadConfigRequest"].path: Role.ADMIN,
    _PROFILER + "Profile": Role.ADMIN,
    _PROFILER + "Terminate": Role.ADMIN,
    **{method.path: Role.PREDICT if name in _NEED_PREDICT else None for name, method in V2_METHODS.items()},
}
"""By path. The health service, and ServerLive and ServerReady of the v2 protocol, need no token; a call of any other
path needs a valid token, whatever its roles."""

LIVE_PATH, READY_PATH = "/v2/health/live", "/v2/health/ready"
PUBLIC_PATHS = (LIVE_PATH, READY_PATH)
"""REST paths that need no token."""


PHOTOS = "/photos/"
"""Before the name of a model that runs on photos."""


def rest_role(path: str, *, metrics_path: str | None) -> Role | None:
    """Return the role that a REST path needs, whatever the method; None if any valid token is enough.

    The path is as sent, and not one of `PUBLIC_PATHS`; `metrics_path` is None if there is no metrics page.
    """
    if path == metrics_path:
        return Role.METRICS
    is_model = path.lower().startswith("/v1/") or path.startswith(("/v2/models/", "/v2/repository/index", PHOTOS))
    return Role.PREDICT if is_model else None
