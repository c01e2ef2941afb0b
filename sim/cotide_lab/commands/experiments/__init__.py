"""`cotide experiment NAME`: one module an experiment, named by its subject."""
