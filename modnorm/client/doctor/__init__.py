"""Looks at this machine and at a lab, and names the remedy of what is broken."""

from modnorm.client.doctor.findings import Finding, Verdict
from modnorm.client.doctor.lab import check_lab
from modnorm.client.doctor.machine import check_machine

__all__ = ["Finding", "Verdict", "check_lab", "check_machine"]
