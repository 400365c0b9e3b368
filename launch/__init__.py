"""Command-line programs; absl flags live only here."""
