#!/bin/bash
cd /app || exit 1
grep ^anchor= memo.conf | cut -d= -f2 > answer.txt
