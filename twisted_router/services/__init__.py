"""What runs between start and stop: prober, keeper, state file, adoption."""
