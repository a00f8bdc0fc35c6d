"""The lines of the table: every policy by name, and those of interest with something given or taken."""

from __future__ import annotations

from functools import partial

from ..core.policies.gate import Gate
from ..core.policies.registry import POLICIES, make_policy
from ..core.policies.vocabulary import Policy
from ..core.policies.work import Work
from .rows import Variant

#: What everything is compared with.
BASELINE = "least_conn"

#: What no real router can reach.
BOUND = "bound"


def _gated() -> Policy:
    return Gate(Work())


_BY_NAME = (
    *(Variant(name, partial(make_policy, name)) for name in POLICIES),
    Variant("prefix-marginal", partial(make_policy, "prefix", {"basis": "marginal"})),
    Variant("prefix-relative", partial(make_policy, "prefix", {"basis": "relative"})),
)

#: The policies ``work`` is measured against.
RIVALS = tuple(variant.name for variant in _BY_NAME if variant.name != "work")

VARIANTS = (
    *_BY_NAME,
    Variant("cache_aware-no-ids", partial(make_policy, "cache_aware"), named=False),
    Variant("session-no-ids", partial(make_policy, "session"), named=False),
    Variant("work-no-ids", Work, named=False),
    Variant("work-gate", _gated),
    Variant("work-gate-no-ids", _gated, named=False),
    Variant("work-gate-learned", _gated, reports=False),
    Variant("work-gate-learned-no-ids", _gated, named=False, reports=False),
    Variant(BOUND, partial(make_policy, BASELINE), pooled=True),
)

BY_NAME = {variant.name: variant for variant in VARIANTS}
