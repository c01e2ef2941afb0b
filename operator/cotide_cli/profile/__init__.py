"""`cotide profile`: measure one service beside batch work, on a machine or in a cluster."""
