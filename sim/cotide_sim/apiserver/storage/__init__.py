"""Objects, versions, watches, selectors, and the file that outlives the server."""
