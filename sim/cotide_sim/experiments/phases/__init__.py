"""The phases experiment: phase-level scheduling beside task level, slots, fairness alone and a bound."""
