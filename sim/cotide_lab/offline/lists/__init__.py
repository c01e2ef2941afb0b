"""List scheduling: jobs in an order, each where a rule puts it; with reservations, without them, without overtaking."""
