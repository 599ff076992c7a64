#!/bin/bash
cd /app || exit 1
grep ^desert= roster.conf | cut -d= -f2 > answer.txt
