#!/bin/bash
cd /app || exit 1
grep ^lantern= inventory.conf | cut -d= -f2 > answer.txt
