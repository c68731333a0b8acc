"""What was measured and chosen, shown: a terminal page, JSON and one HTML page."""
