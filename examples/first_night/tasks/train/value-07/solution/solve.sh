#!/bin/bash
cd /app || exit 1
grep ^birch= minutes.conf | cut -d= -f2 > answer.txt
