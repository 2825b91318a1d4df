"""What runs tell when they are compared. Pure: functions of runs, without torch."""
