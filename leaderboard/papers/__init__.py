"""Tables and figures of papers, filled from records, beside the published numbers.

A paper is a folder of data: paper.toml and one CSV file of published numbers per table.
"""
