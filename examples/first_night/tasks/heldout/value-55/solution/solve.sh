#!/bin/bash
cd /app || exit 1
grep ^acorn= memo.conf | cut -d= -f2 > answer.txt
