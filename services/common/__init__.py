"""What every service shares: settings, server bootstrap, queue."""
