"""The report: a store's finished runs as tables, figures and one page. It reads, and never trains."""
