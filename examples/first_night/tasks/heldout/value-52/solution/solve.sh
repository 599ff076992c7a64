#!/bin/bash
cd /app || exit 1
grep ^fiddle= payroll.conf | cut -d= -f2 > answer.txt
