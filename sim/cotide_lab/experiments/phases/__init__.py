"""The phases experiment: phase-level scheduling compared with task level, slots, fairness alone and a bound."""
