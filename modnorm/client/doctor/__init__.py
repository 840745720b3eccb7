"""Checks of this machine and of a lab, with remedies."""

from modnorm.client.doctor.findings import Finding, Verdict
from modnorm.client.doctor.lab import check_lab
from modnorm.client.doctor.machine import check_machine

__all__ = ["Finding", "Verdict", "check_lab", "check_machine"]
