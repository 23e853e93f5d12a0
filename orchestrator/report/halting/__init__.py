"""Report halting depth and use of experts: values, tables and figures."""
