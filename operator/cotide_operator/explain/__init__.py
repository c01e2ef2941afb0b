"""Why a pod or a Job is where it is, or waits: pure functions of API objects, and the reader that fetches them."""
