"""How long a job runs, alone and beside others."""
