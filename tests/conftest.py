"""Settings shared by all tests."""

import torch
from hypothesis import settings

# The first call into torch is slow; a deadline on single examples would only measure that.
settings.register_profile("gossamer", deadline=None)
settings.load_profile("gossamer")

# What needs a GPU is no test where there is none.
collect_ignore = [] if torch.cuda.is_available() else ["test_stack_cuda.py"]

# Two test workers share two cores.
torch.set_num_threads(1)
