"""The tables of papers, made again from records, beside what was published.

A paper is a folder of data: paper.toml and one CSV file of published numbers per table.
"""
