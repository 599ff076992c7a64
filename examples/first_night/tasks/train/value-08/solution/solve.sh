#!/bin/bash
cd /app || exit 1
grep ^quartz= diary.conf | cut -d= -f2 > answer.txt
