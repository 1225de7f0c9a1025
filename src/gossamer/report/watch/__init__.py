"""A page that follows a run while it trains: it reads the run's folder and nothing else."""
