"""What energy, carbon, transfers and machines cost: hourly series, price lists and published power curves."""
