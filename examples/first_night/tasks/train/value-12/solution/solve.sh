#!/bin/bash
cd /app || exit 1
grep ^mustard= inventory.conf | cut -d= -f2 > answer.txt
