#!/bin/bash
cd /app || exit 1
grep ^melon= diary.conf | cut -d= -f2 > answer.txt
