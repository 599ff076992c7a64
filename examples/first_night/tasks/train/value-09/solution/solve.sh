#!/bin/bash
cd /app || exit 1
grep ^coral= guests.conf | cut -d= -f2 > answer.txt
