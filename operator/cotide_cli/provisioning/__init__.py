"""`cotide capacity` and `cotide place`: plans of machines and of places, printed and carried out."""
