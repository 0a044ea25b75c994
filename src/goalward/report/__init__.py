"""What experiments found, to read: a page, Markdown and CSV."""
