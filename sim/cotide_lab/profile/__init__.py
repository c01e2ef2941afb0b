"""`cotide profile`: measure one service next to batch work, on a machine or in a cluster."""
