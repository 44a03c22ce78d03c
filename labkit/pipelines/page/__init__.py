"""The picture of a timeline, and the page that plays it and other schedules."""
