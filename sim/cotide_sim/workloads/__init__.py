"""Plans of runs: services with changing request rates, jobs that arrive; generated or from traces."""
