"""What a run is, for both engines: settings, plan, folder, summary and status."""
