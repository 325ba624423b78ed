"""The report: everything about a table of runs on one self-contained page."""

from bayeslaw._report._page import Report as Report
from bayeslaw._report._page import report as report
