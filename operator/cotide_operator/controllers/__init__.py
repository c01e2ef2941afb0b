"""Jobs and Workloads: what each needs next, its child pods, its status."""
