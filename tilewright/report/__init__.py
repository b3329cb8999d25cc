"""Presentation of results: terminal tables, Markdown, JSON, SVG plots, the tables of README.md and docs/."""
