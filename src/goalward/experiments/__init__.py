"""The paper's tables and figures as rows of data; running them, tables, the report."""
