"""The report: everything about a table of runs on one self-contained page.

Imports `plots`, `datasets`, `_decisions` and the rooms below them.
"""

from bayeslaw._report.page import Report as Report
from bayeslaw._report.page import report as report
