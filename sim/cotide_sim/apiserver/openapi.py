"""OpenAPI documents."""

from __future__ import annotations

from cotide_sim.apiserver.resources import Json, Registry


class OpenApi:
    """Makes OpenAPI documents from the registry."""

    def __init__(self, registry: Registry, version: str) -> None:
        self._registry, self._version = registry, version

    def version_two(self) -> Json:
        """Return `/openapi/v2`."""
        return {"swagger": "2.0", "info": {"title": "Kubernetes", "version": self._version}, "paths": {}}

    def index(self) -> Json:
        """Return `/openapi/v3`."""
        return {"paths": {}}

    def document(self, path: str) -> Json | None:
        """Return one document."""
        return None
