"""Launchers: processes of one machine, torchrun, a Ray cluster, or Slurm."""
