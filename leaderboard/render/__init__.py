"""Tables as a site, as Markdown and for a terminal."""
