"""Pictures of runs on simulated ranks, and the pages that play them."""
