"""The picture of links, and the page that shows them, live or replayed."""
