"""Pictures of a run, on one self-contained page."""

from gdp.report.data import Curve as Curve
from gdp.report.data import Interval as Interval
from gdp.report.data import Level as Level
from gdp.report.data import Probe as Probe
from gdp.report.data import ReportData as ReportData
from gdp.report.data import Section as Section
from gdp.report.page import write_report as write_report
