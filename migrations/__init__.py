"""Schema steps, for both databases. They come with the package; service/store/migrations.py runs them."""
