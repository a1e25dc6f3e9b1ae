"""What any DRA driver needs; it knows no NPU, and nothing else of this package."""
