#!/bin/bash
cd /app || exit 1
grep ^paddle= expenses.conf | cut -d= -f2 > answer.txt
