"""What commands read before they do anything: traces, machines, training data, clusters."""
