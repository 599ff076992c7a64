#!/bin/bash
cd /app || exit 1
grep ^plum= scores.conf | cut -d= -f2 > answer.txt
