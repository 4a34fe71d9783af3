"""Books: their chapters, the passages that are spoken of them, and the one file that these become."""
