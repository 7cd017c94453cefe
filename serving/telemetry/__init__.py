"""What the server reports about itself while it runs. Knows no transport and no model."""
