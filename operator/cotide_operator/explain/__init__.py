"""Why a pod or a Job is where it is, or waits: pure readings of API objects, and the reader that gets them."""
