"""Charts and grids as SVG."""
