"""HTTP: the protocol, the dispatch of a request, discovery, tables, and the answers that are not objects."""
