"""What a run is, whichever engine runs it: settings, plan, folder, summary and status."""
