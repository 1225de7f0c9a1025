"""Every table and figure of the paper, repeated by one command: recipes, runs kept by configuration, and pages."""
