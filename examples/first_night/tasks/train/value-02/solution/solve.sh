#!/bin/bash
cd /app || exit 1
grep ^pepper= events.conf | cut -d= -f2 > answer.txt
