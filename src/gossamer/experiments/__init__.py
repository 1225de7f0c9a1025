"""Named settings, comparisons over algorithms and seeds, and their reports."""
