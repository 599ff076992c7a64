#!/bin/bash
cd /app || exit 1
grep ^rocket= stock.conf | cut -d= -f2 > answer.txt
