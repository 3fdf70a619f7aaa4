"""Reports: tables and figures of a run on one self-contained page."""
