"""Starting agents: as processes of one machine, under torchrun, on a Ray cluster, or by Slurm."""
