"""The picture of a recording, and the page that shows it, live or replayed."""
