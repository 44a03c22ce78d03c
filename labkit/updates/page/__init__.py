"""Pictures of updates, and the pages of a parameter server and of stability."""
