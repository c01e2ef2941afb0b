"""The demo: the whole system on one machine, one policy after the other, on the same arrivals."""
