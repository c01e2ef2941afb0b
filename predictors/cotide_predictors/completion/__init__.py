"""How long a job runs, alone and next to others."""
