"""Plans over time: reservations, backfilling, planned starts; one method a module."""
