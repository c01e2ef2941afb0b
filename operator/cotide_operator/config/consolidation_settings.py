"""The section of the configuration file about automatic consolidation.

Part of `settings`; read by `consolidation.controller`. Off unless it is enabled; the operator then needs the right to
patch nodes (deploy/consolidation). Seconds are those of the operator's clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from cotide_core.consolidation.removal.stays import MoveRules
from cotide_core.consolidation.removal.watching import WatchRules
from cotide_operator.config.section import Section

_MOVES = MoveRules()
_WATCH = WatchRules()


class ConsolidationSettings(Section):
    """The operator frees and cordons nodes, within budgets."""

    enabled: bool = False
    """Whether nodes are freed; False also uncordons the nodes that an earlier operator holds."""
    interval_seconds: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds between two plans; waiting pods are checked every second of the wall."""
    moves_per_hour: int = Field(default=_WATCH.moves_per_hour, ge=0, le=100_000)
    """Most moved pods within any hour."""
    moves_at_once: int = Field(default=_WATCH.moves_at_once, ge=1, le=100)
    """Most pods that move at once."""
    moves_per_node: int = Field(default=_MOVES.moves_per_node, ge=0, le=1000)
    """Most moved pods for one node."""
    minimum_age_seconds: float = Field(default=_MOVES.minimum_age_seconds, ge=0)
    """Age below which a pod stays."""
    stable_seconds: float = Field(default=_WATCH.stable_seconds, ge=0)
    """Time during which each plan must be able to free a node."""
    cooldown_seconds: float = Field(default=_WATCH.cooldown_seconds, ge=0)
    """Pause before an uncordoned node is drained again; none is drained where pods waited for it."""
    keep_freed_seconds: float = Field(default=_WATCH.keep_freed_seconds, gt=0)
    """Time after which an unused freed node is uncordoned."""
    spare_nodes: int = Field(default=_WATCH.spare_nodes, ge=0, le=10_000)
    """Empty nodes that stay open; with `packs`, freed ones are opened if fewer are empty."""
    reserve_share: float = Field(default=_MOVES.reserve_share, ge=0, le=0.9)
    """Share of cpu and memory that stays free on nodes that take pods."""
    pays_after_seconds: float = Field(default=_MOVES.pays_after_seconds, ge=0)
    """A pod that ends sooner than this is not moved."""
    empties_within_seconds: float = Field(default=_MOVES.empties_within_seconds, ge=0)
    """A node with only pods that end sooner than this is left to empty."""
    timeout_seconds: float = Field(default=300.0, ge=1, le=86_400)
    """Time for each pod to be gone and ready again elsewhere."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    """Namespaces of pods that stay."""
    excluded_nodes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Label to its values: nodes of these pools are not freed, but may take pods."""
    packs: bool = True
    """Whether pods go to the fullest node that takes them while nodes are freed: a scheduler that spreads pods would
    put moved pods on the next node to be freed."""
    move_local_storage: bool = False
    """Whether pods with local storage move."""
    move_unwilling: bool = False
    """Whether pods that prefer not to be evicted move."""
    move_gangs: bool = False
    """Whether a gang at its minimum is moved as a whole: all of it is on one node, and it has at most `moves_at_once`
    pods."""

    @model_validator(mode="after")
    def _moves_a_node(self) -> ConsolidationSettings:
        if self.enabled and self.stable_seconds and self.stable_seconds < self.interval_seconds:
            raise ValueError("stableSeconds must not be below intervalSeconds: one plan is no proof of a stable load")
        if self.move_gangs and self.moves_at_once < 2:
            raise ValueError("moveGangs moves gangs of up to movesAtOnce pods: set that to 2 or more")
        return self

    def moves(self) -> MoveRules:
        """Return the rules for moves of pods."""
        return MoveRules(
            excluded_namespaces=frozenset(self.excluded_namespaces),
            minimum_age_seconds=self.minimum_age_seconds,
            pays_after_seconds=self.pays_after_seconds,
            empties_within_seconds=self.empties_within_seconds,
            local_storage=self.move_local_storage,
            prefer_no_eviction=self.move_unwilling,
            reserve_share=self.reserve_share,
            most_moves=max(self.moves_per_hour, 1),
            moves_per_node=min(self.moves_per_node, self.moves_per_hour),
            gang_most=self.moves_at_once if self.move_gangs else 0,
        )

    def pace(self) -> WatchRules:
        """Return the limits of how fast nodes are freed."""
        return WatchRules(
            moves_per_hour=self.moves_per_hour,
            moves_at_once=self.moves_at_once,
            stable_seconds=self.stable_seconds,
            cooldown_seconds=self.cooldown_seconds,
            keep_freed_seconds=self.keep_freed_seconds,
            spare_nodes=self.spare_nodes,
            opens_spares=self.packs,
        )
