"""`gossamer report`: run folders as one HTML page, and as figures for papers."""
