"""`cotide consolidate --watch`: rounds, shown and on request carried out."""
