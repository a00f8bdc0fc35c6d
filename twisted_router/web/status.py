"""``/health`` and its relatives: the fleet's state for people, load balancers and Prometheus."""

from __future__ import annotations

import json
from typing import Any

from twisted.web.server import Request

from ..core.snapshot import FleetView, ReplicaView


def replica_json(replica: ReplicaView) -> dict[str, Any]:
    """One replica in ``/health`` (manual: Readiness and Failover)."""
    return {
        "name": replica.name,
        "url": replica.url,
        "ready": replica.ready,
        "phase": replica.phase.value,
        "outstanding": replica.outstanding,
        "routed": replica.routed,
    }


def health_json(view: FleetView) -> dict[str, Any]:
    """The body of ``/health`` (manual: Readiness and Failover)."""
    return {
        "status": "ok" if view.ready else "no_replicas",
        "replicas_ready": view.ready,
        "replicas_total": len(view.replicas),
        "replicas_failed": view.failed,
        "sessions": view.sessions,
        "routed": view.routed,
        "affinity_hits": view.affinity_hits,
        "rejected": view.rejected,
        "replicas": [replica_json(replica) for replica in view.replicas],
    }


def answer(request: Request, document: Any, status: int = 200) -> bytes:
    """Render JSON."""
    request.setResponseCode(status)
    request.setHeader(b"Content-Type", b"application/json")
    request.setHeader(b"Cache-Control", b"no-store")
    return json.dumps(document, indent=2).encode("ascii") + b"\n"
