"""The sections of a report, one module per topic. Sections declared as data are laid out by `goalscope.report.page`."""
