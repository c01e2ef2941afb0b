"""`cotide evaluate`: scores on held-out samples, on unseen tables and by training size, with reliability diagrams."""
