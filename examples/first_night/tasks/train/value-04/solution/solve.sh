#!/bin/bash
cd /app || exit 1
grep ^melon= draft.conf | cut -d= -f2 > answer.txt
