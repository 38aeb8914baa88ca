"""Recurring messages: cron expressions, time zones, and how far each schedule of a partition has come."""

from .machine import Mark as Mark
from .machine import Schedule as Schedule
from .machine import Schedules as Schedules
from .machine import is_schedule as is_schedule
from .records import ScheduleRecord as ScheduleRecord
