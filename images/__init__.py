"""What is launched: builds, catalogs and the simulated engine. Imports nothing of the service or the runners."""
