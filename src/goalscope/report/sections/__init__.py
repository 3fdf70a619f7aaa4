"""The sections of a report, one module per idea. Sections declared as data are laid out by `goalscope.report.page`."""
